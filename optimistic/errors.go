package optimistic

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
)

// Errors of optimistic updates. They are disjoint: match them with errors.Is.
var (
	// ErrStale: another caller has written the row since it was read, or deleted it. Nothing was
	// written. The error is a *StaleError. A transaction that the server rolled back for the sake
	// of others is dblock.ErrConflict.
	ErrStale = attempt.ErrStale

	// ErrNotFound: there is no such row. Nothing was written. The error is a *NotFoundError.
	ErrNotFound = attempt.ErrNotFound

	// ErrSuppressed: the row has the version expected, and the server did not write it. A trigger
	// of the host's has suppressed the write, or a rule or a row-level policy. This call wrote
	// nothing. What a trigger or a rule wrote instead, such as a soft delete, stands. It is not
	// tried again. The error is a *SuppressedError.
	ErrSuppressed = attempt.ErrSuppressed

	// ErrTooMany: the statement hit more than one row, so its key is not unique or its condition is
	// too wide. Roll back: outside of a transaction the rows are written. The error is a
	// *TooManyError.
	ErrTooMany = attempt.ErrTooMany
)

// Row names the row of a statement, and the version expected, for errors alone: what is not known
// may be left out.
type Row struct {
	Table    string // as the user knows it, such as "shop.account"
	Key      any    // the value of its key
	Expected any    // the version it was read with
}

// String is "account 17, read at 3".
func (r Row) String() string {
	var b strings.Builder
	b.WriteString(r.name())
	if r.Expected != nil {
		fmt.Fprintf(&b, ", read at %v", shown(r.Expected))
	}
	return b.String()
}

func (r Row) name() string {
	switch {
	case r.Table == "" && r.Key == nil:
		return "the row"
	case r.Key == nil:
		return "a row of " + r.Table
	case r.Table == "":
		return fmt.Sprintf("the row %v", shown(r.Key))
	}
	return fmt.Sprintf("%s %v", r.Table, shown(r.Key))
}

// StaleError names the row that had changed since it was read. It matches ErrStale.
type StaleError struct {
	Table    string
	Key      any
	Expected any // the version that the row was read with
	Actual   any // the version it has now; nil until Diagnose or a Table has looked
	Attempts int // how often it was tried; 0: it was not counted
}

func (e *StaleError) Error() string {
	row := Row{Table: e.Table, Key: e.Key, Expected: e.Expected}
	var b strings.Builder
	fmt.Fprintf(&b, "optimistic: %s, has changed since", row)
	if e.Expected == nil {
		b.Reset()
		fmt.Fprintf(&b, "optimistic: %s has changed since it was read", row)
	}
	if e.Actual != nil {
		fmt.Fprintf(&b, ": it is at %v", shown(e.Actual))
	}
	if e.Attempts > 1 {
		fmt.Fprintf(&b, " (%d attempts)", e.Attempts)
	}
	b.WriteString("; nothing was written: read it again and repeat the change")
	return b.String()
}

// Is makes errors.Is(err, ErrStale) true.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// NotFoundError names the row that does not exist. It matches ErrNotFound.
type NotFoundError struct {
	Table string
	Key   any
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("optimistic: %s does not exist (any more); nothing was written", Row{Table: e.Table, Key: e.Key}.name())
}

// Is makes errors.Is(err, ErrNotFound) true.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// SuppressedError names the row that the server did not write. It matches ErrSuppressed.
type SuppressedError struct {
	Table string
	Key   any
}

func (e *SuppressedError) Error() string {
	return fmt.Sprintf("optimistic: a trigger, a rule or a policy suppressed the write of %s; what it wrote instead stands: look for it in the database",
		Row{Table: e.Table, Key: e.Key}.name())
}

// Is makes errors.Is(err, ErrSuppressed) true.
func (e *SuppressedError) Is(target error) bool { return target == ErrSuppressed }

// TooManyError names the key of a statement that hit more rows than one. It matches ErrTooMany.
type TooManyError struct {
	Table string
	Key   any
	Rows  int64 // how many were hit
}

func (e *TooManyError) Error() string {
	return fmt.Sprintf("optimistic: %s: %d rows were hit instead of one: give the key a unique index, and roll back",
		Row{Table: e.Table, Key: e.Key}.name(), e.Rows)
}

// Is makes errors.Is(err, ErrTooMany) true.
func (e *TooManyError) Is(target error) bool { return target == ErrTooMany }

// invalid says which argument is refused. Nothing was sent.
func invalid(field, format string, args ...any) error {
	return &dblock.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func init() { attempt.Counted = counted }

// counted is err with the number of attempts in its conflict. That is copied, as other code may use
// it.
func counted(err error, attempts int) error {
	var conflict *StaleError
	if !errors.As(err, &conflict) {
		return err
	}
	c := *conflict
	c.Attempts = attempts
	return amend(&c, err)
}
