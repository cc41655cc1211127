package pglock

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// describing has pgx ask the server for the types of a query's arguments. It is no batcher.
type describing struct{ Tx }

func (d describing) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	return d.Tx.Query(ctx, query, append([]any{pgx.QueryExecModeDescribeExec}, args...)...)
}

// forKeys returns tx as it sends keys of any type. In the modes exec and simple_protocol pgx knows the
// type of an argument by its Go type alone: there one more round trip asks for those of other keys.
func forKeys(tx Tx, keys any) Tx {
	switch keys.(type) {
	case []string, []int, []int16, []int32, []int64:
		return tx
	}
	if conn, ok := tx.(interface{ Conn() *pgx.Conn }); ok {
		switch conn.Conn().Config().DefaultQueryExecMode {
		case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
			return describing{tx}
		}
	}
	return tx
}
