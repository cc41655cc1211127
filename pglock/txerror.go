package pglock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/rowlock"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// advice is what to do about errors of a caller's transaction or tables. kind is the public error
// where the class of the error has none.
var advice = map[string]struct {
	kind error // nil: none of dblock's
	text string
}{
	postgres.CodeOutOfMemory: {nil, "take fewer at once, a lock of the whole " +
		"instead of one a part, or raise max_locks_per_transaction; roll back"},
	postgres.CodeReadOnlyTransaction: {nil, "the transaction is read-only, or the server is a standby, where locks " +
		"keep nobody out of the primary: begin one that may write, on the primary"},
	postgres.CodeFailedTransaction: {nil, "an earlier statement of the transaction has failed: roll it back, then begin again"},
	postgres.CodeUndefinedTable:    {nil, "there is no such table where the connection looks: name its schema as well, or create it"},
	postgres.CodeInvalidSchemaName: {nil, "there is no such schema"},
	postgres.CodeUndefinedColumn:   {nil, "there is no such column in the table; names are taken as they are, upper case too"},
	postgres.CodeInvalidText:       {dblock.ErrInvalid, "the column's type has no such value: roll the transaction back"},
	postgres.CodeInvalidDatetime:   {dblock.ErrInvalid, "the column's type has no such value: roll the transaction back"},
	postgres.CodeInvalidEncoding:   {dblock.ErrInvalid, "the key is not UTF-8: roll the transaction back"},
	postgres.CodeNoTransaction:     {nil, "there is no transaction: begin one, as the locks end with it"},
	postgres.CodeUnsupported:       {dblock.ErrUnsupported, "rows of this query can't be locked: select from the table itself"},
	postgres.CodeNotPermitted:      {nil, "to lock rows takes the privilege UPDATE on the table, besides SELECT"},
}

// txError says what an error means to the one whose transaction it came from. key is what was to be
// locked.
func txError(ctx context.Context, key string, err error) error {
	switch ended := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, dblock.ErrUnsupported):
		return err
	case notEncoded(err):
		return fmt.Errorf("%w: to lock %s: the column has another type than the key: nothing was sent: %w", dblock.ErrInvalid, key, err)
	case ended != nil && postgres.Code(err) == "":
		return rowlock.Held(key, fmt.Errorf("%w (%w)", ended, err))
	case errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("dblock: to lock %s: the transaction has ended: locks like this need one that is open: %w", key, err)
	case postgres.IsConflict(err):
		return sqlerr.Wrap(sqlerr.Retryable, err, "to lock "+key+": roll back and run the transaction again", "")
	case postgres.IsLocked(err):
		return rowlock.Held(key, fmt.Errorf("by the session's lock_timeout, and the transaction has failed: roll it back: %w", err))
	}
	what, a := "to lock "+key, advice[postgres.Code(err)]
	if a.text != "" {
		what += ": " + a.text
	}
	switch {
	case a.kind != nil:
		return fmt.Errorf("%w: %s: %w", a.kind, what, err)
	case postgres.Code(err) == "" && !postgres.IsBroken(err):
		return sqlerr.Wrap(sqlerr.Unclassified, err, what, "")
	default:
		return sqlerr.Wrap(postgres.Classify(sqlerr.Unwritten(err)).OfHost(), err, what, "")
	}
}

// notEncoded recognizes an argument that pgx can't send as the type that the statement has for it.
// pgx has no type for that error.
func notEncoded(err error) bool {
	return err != nil && strings.Contains(err.Error(), "failed to encode args[")
}
