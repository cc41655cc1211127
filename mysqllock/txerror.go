package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/rowlock"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// advice is what to do about errors of a caller's transaction or tables.
var advice = map[uint16]string{
	mysql.ReadOnlyTransaction: "the transaction is read-only: begin one that may write",
	mysql.NoSuchTable:         "there is no such table: name its database as well, or create it",
	mysql.UnknownDatabase:     "there is no such database",
	mysql.NoSuchColumn:        "there is no such column in the table",
	mysql.NotPermitted: "to lock rows takes the privilege SELECT on the table, and on MySQL one of UPDATE, DELETE " +
		"and LOCK TABLES",
}

// txError says what an error means to the one whose transaction it came from. name is what was to
// be locked.
func txError(ctx context.Context, name string, err error) error {
	switch ended := ctx.Err(); {
	case err == nil:
		return nil
	case errors.As(err, new(*ScanError)), errors.Is(err, dblock.ErrUnsupported):
		return err
	case ended != nil && mysql.ErrorNumber(err) == 0:
		return rowlock.Held(name, fmt.Errorf("%w (%w)", ended, err))
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("dblock: to lock %s: the transaction has ended: locks like this need one that is open: %w", name, err)
	case mysql.IsConflict(err):
		return sqlerr.Wrap(sqlerr.Retryable, err, "to lock "+name+": roll back and run the transaction again", "")
	case mysql.IsLocked(err):
		return rowlock.Held(name, fmt.Errorf("by the server: %w", err))
	}
	what, number := "to lock "+name, mysql.ErrorNumber(err)
	if text := advice[number]; text != "" {
		what += ": " + text
	}
	if number == 0 {
		return sqlerr.Wrap(sqlerr.Unclassified, err, what, "")
	}
	return sqlerr.Wrap(mysql.Classify(sqlerr.Unwritten(err)).OfHost(), err, what, "")
}
