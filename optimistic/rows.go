package optimistic

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock"
)

// Rows is what an UPDATE or DELETE with a version in its WHERE comes to, by how many rows it hit:
// sqlc's :execrows. It is nil for one row, a *StaleError for none, a *TooManyError for more; err,
// if not nil, is returned as it is. at is for the error alone.
//
//	n, err := q.UpdateAccount(ctx, params)
//	err = optimistic.Rows(n, err, at)
//
// MySQL and MariaDB count rows that have changed, and not those that were found, unless
// clientFoundRows is set. That is the same here, because each write changes the version: so every
// such statement must set it to another value. One that sets a column to what it was, and leaves
// the version, is a conflict there.
func Rows(n int64, err error, at Row) error {
	switch {
	case err != nil:
		return err
	case n == 1:
		return nil
	case n == 0:
		return &StaleError{Table: at.Table, Key: at.Key, Expected: at.Expected}
	case n > 1:
		return &TooManyError{Table: at.Table, Key: at.Key, Rows: n}
	}
	return uncounted(at, fmt.Errorf("it says %d", n))
}

// One is Rows for a statement that returns the row as it has become: sqlc's :one with RETURNING. No
// row, which is sql.ErrNoRows or pgx.ErrNoRows, is a *StaleError; any other error is returned as it
// is, and the row is the zero value then.
func One[T any](row T, err error, at Row) (T, error) {
	switch {
	case err == nil:
		return row, nil
	case errors.Is(err, sql.ErrNoRows): // pgx.ErrNoRows is that, too
		err = &StaleError{Table: at.Table, Key: at.Key, Expected: at.Expected}
	}
	var none T
	return none, err
}

// Result is Rows for a sql.Result: sqlc's :execresult. If the driver does not report how many rows
// there were, the error is dblock.ErrOutcomeUnknown. A result that is nil is an
// *dblock.InvalidError.
func Result(r interface{ RowsAffected() (int64, error) }, err error, at Row) error {
	switch {
	case err != nil:
		return err
	case r == nil:
		return invalid("result", "it is nil, and so is the error")
	}
	n, err := r.RowsAffected()
	if err != nil {
		return uncounted(at, err)
	}
	return Rows(n, nil, at)
}

// Tag is Rows for a pgconn.CommandTag: sqlc's :execresult with pgx. A tag that is nil is an
// *dblock.InvalidError.
func Tag(tag interface{ RowsAffected() int64 }, err error, at Row) error {
	switch {
	case err != nil:
		return err
	case tag == nil:
		return invalid("tag", "it is nil, and so is the error")
	}
	return Rows(tag.RowsAffected(), nil, at)
}

// uncounted is for a statement that was run, and whose number of rows is unknown.
func uncounted(at Row, err error) error {
	return fmt.Errorf("%w: %s: the driver does not report how many rows were hit: read the row again: %w", dblock.ErrOutcomeUnknown, at, err)
}
