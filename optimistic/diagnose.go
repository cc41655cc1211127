package optimistic

import (
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Diagnose distinguishes a row that has changed from one that is gone. If err is a *StaleError it
// calls current once, which reads the row's version:
//
//   - no row (sql.ErrNoRows, pgx.ErrNoRows) is a *NotFoundError;
//   - a version is put into a copy of the error, as Actual. It may be the one that was expected:
//     then the row has come back to it, or was read before another's transaction that is under way;
//     it is a conflict all the same;
//   - any other error of current's is joined to the conflict.
//
// Any other err is returned as it is, nil too, and current is not called. current runs one
// statement more, after a conflict only. In a transaction at REPEATABLE READ or above it sees the
// row as it was when that began, unless it reads with a lock.
func Diagnose[V any](err error, current func() (V, error)) error {
	var conflict *StaleError
	if !errors.As(err, &conflict) {
		return err
	}
	if current == nil {
		return errors.Join(err, invalid("current", "it is nil"))
	}
	actual, looked := current()
	switch {
	case looked == nil:
		found := *conflict
		found.Actual = actual
		if found.Expected != nil && same(actual, found.Expected) {
			return fmt.Errorf("%w (it has come back to that, or another write was under way)", amend(&found, err))
		}
		return amend(&found, err)
	case errors.Is(looked, sql.ErrNoRows):
		return &NotFoundError{Table: conflict.Table, Key: conflict.Key}
	default:
		return errors.Join(err, fmt.Errorf("optimistic: to see what the row has become: %w", looked))
	}
}

// amend is a copy of the conflict in err, in the place of it.
func amend(conflict *StaleError, err error) error {
	if _, bare := err.(*StaleError); bare {
		return conflict
	}
	return &amended{conflict, err}
}

// amended is an error that a caller has put around a conflict. errors.As finds the copy first.
type amended struct {
	conflict *StaleError
	err      error
}

func (e *amended) Error() string { return fmt.Sprintf("%v (%v)", e.conflict, e.err) }

func (e *amended) Unwrap() []error { return []error{e.conflict, e.err} }

// same reports whether two tokens are one, for the text of an error: int32 and int64, times in two
// zones.
func same(a, b any) bool {
	one, isTime := a.(time.Time)
	other, isToo := b.(time.Time)
	if isTime && isToo {
		return one.Equal(other)
	}
	return fmt.Sprint(a) == fmt.Sprint(b)
}
