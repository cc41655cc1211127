package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysqlfault"
	"github.com/dblock-go/dblock/internal/rowlock"
)

// advice is what to do about errors that a caller's transaction or tables are to blame for, and what they count as.
var advice = map[uint16]struct {
	kind error // nil: none of dblock's
	text string
}{
	mysqlfault.ReadOnlyTransaction: {dblock.ErrUnavailable, "the transaction is read-only: begin one that may write"},
	mysqlfault.NoSuchTable:         {nil, "there is no such table: name its database as well, or create it"},
	mysqlfault.UnknownDatabase:     {nil, "there is no such database"},
	mysqlfault.NoSuchColumn:        {nil, "there is no such column in the table"},
	mysqlfault.NotPermitted: {nil, "to lock rows takes the privilege SELECT on the table, and on MySQL one of UPDATE, DELETE " +
		"and LOCK TABLES"},
}

// txError says what an error means to the one whose transaction it came from. name is what was to be locked.
func txError(ctx context.Context, name string, err error) error {
	switch ended := ctx.Err(); {
	case err == nil:
		return nil
	case errors.As(err, new(*ScanError)), errors.Is(err, dblock.ErrUnsupported):
		return err
	case ended != nil && mysqlfault.Number(err) == 0:
		return rowlock.Held(name, fmt.Errorf("%w (%w)", ended, err))
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("dblock: to lock %s: the transaction has ended: locks like this need one that is open: %w", name, err)
	case mysqlfault.IsConflict(err):
		return fmt.Errorf("%w: to lock %s: roll back and run the transaction again: %w", dblock.ErrConflict, name, err)
	case mysqlfault.IsLocked(err):
		return rowlock.Held(name, fmt.Errorf("by the server: %w", err))
	}
	a, ok := advice[mysqlfault.Number(err)]
	switch {
	case !ok:
		return fmt.Errorf("dblock: to lock %s: %w", name, err)
	case a.kind == nil:
		return fmt.Errorf("dblock: to lock %s: %s: %w", name, a.text, err)
	default:
		return fmt.Errorf("%w: to lock %s: %s: %w", a.kind, name, a.text, err)
	}
}
