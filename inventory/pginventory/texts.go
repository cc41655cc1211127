package pginventory

import "github.com/jackc/pgx/v5/pgtype"

// texts is a text[] that is sent without an allocation for each of its elements.
type texts []string

func (a texts) Dimensions() []pgtype.ArrayDimension {
	if a == nil {
		return nil
	}
	return []pgtype.ArrayDimension{{Length: int32(len(a)), LowerBound: 1}}
}

func (a texts) Index(i int) any { return (*element)(&a[i]) }

func (a texts) IndexType() any { return (*element)(nil) }

// element is one of them, which stays where it is.
type element string

func (e *element) TextValue() (pgtype.Text, error) {
	if e == nil {
		return pgtype.Text{}, nil
	}
	return pgtype.Text{String: string(*e), Valid: true}, nil
}
