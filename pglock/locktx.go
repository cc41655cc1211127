package pglock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/rowlock"
)

// maxWait is the longest lock_timeout, 24 days.
const maxWait = math.MaxInt32 * time.Millisecond

// LockTx locks keys until tx ends, or is rolled back to a savepoint from before: all of them or
// none, in one round trip. It takes them in one order, so that calls never deadlock with each
// other; with other locks of the transaction they can. They are advisory locks: they exclude only
// transactions that take them. Duplicates count once; 1 to dblock.MaxSetKeys keys.
//
// The wait is for all keys together. With dblock.NoWait LockTx refuses at once if one of the keys
// is not free; dblock.SkipLocked is an *dblock.InvalidError. lock_timeout is afterwards what it
// was, and a refusal leaves tx as it was, ready for use. If ctx ends the wait, pgx closes the
// connection, and tx is lost.
//
// Begin tx at READ COMMITTED: at REPEATABLE READ and above it reads what was there before the wait,
// and not what the holder before has written.
//
// Errors: a *dblock.HeldError (ErrNotAcquired) with the number of the key that was not locked,
// whose Wait says what ended the wait. dblock.ErrConflict after a deadlock. dblock.ErrOverloaded if
// the server's lock table is full. dblock.ErrUnavailable on a standby, where such locks exclude no
// session. An *dblock.InvalidError. After all but the first and the last tx has to be rolled back.
// Others are pgx's.
func LockTx(ctx context.Context, tx Tx, wait dblock.TxWait, keys ...Key) error {
	return lockTx(ctx, tx, "", wait, keys)
}

// LockTxShared is LockTx in shared mode: shared holders coexist, an exclusive holder excludes them.
func LockTxShared(ctx context.Context, tx Tx, wait dblock.TxWait, keys ...Key) error {
	return lockTx(ctx, tx, "_shared", wait, keys)
}

// The statements, for one message of the simple protocol. An exception that is handled undoes what
// was locked in its block, and no error is raised or logged: it is what a savepoint does, without a
// round trip of its own. Keys and waits travel in settings, so that statistics of statements show
// one text, not one for each key.
const (
	arguments = "SELECT pg_catalog.set_config('dblock.keys', '{%s}', true), pg_catalog.set_config('dblock.wait', '%d', true);"

	tryKeys = `DO $dblock$
DECLARE
	wanted bigint[] := pg_catalog.current_setting('dblock.keys');
	refused int := 0;
BEGIN
	IF pg_catalog.pg_is_in_recovery() THEN
		RAISE read_only_sql_transaction;
	END IF;
	BEGIN
		FOR i IN 1 .. pg_catalog.cardinality(wanted) LOOP
			IF NOT pg_catalog.%s(wanted[i]) THEN
				refused := i;
				RAISE lock_not_available;
			END IF;
		END LOOP;
	EXCEPTION WHEN lock_not_available THEN
		NULL;
	END;
	PERFORM pg_catalog.set_config('dblock.refused', refused::text, true);
END $dblock$;`

	// waitForKeys gives each key what is left of the wait, which began when the message came.
	waitForKeys = `DO $dblock$
DECLARE
	wanted bigint[] := pg_catalog.current_setting('dblock.keys');
	wait bigint := pg_catalog.current_setting('dblock.wait');
	before text := pg_catalog.current_setting('lock_timeout');
	gone interval;
	refused int := 0;
BEGIN
	IF pg_catalog.pg_is_in_recovery() THEN
		RAISE read_only_sql_transaction;
	END IF;
	IF wait >= 0 THEN
		PERFORM pg_catalog.set_config('lock_timeout', '0', true);
	END IF;
	BEGIN
		FOR i IN 1 .. pg_catalog.cardinality(wanted) LOOP
			refused := i;
			IF wait > 0 THEN
				gone := pg_catalog.clock_timestamp() - pg_catalog.statement_timestamp();
				PERFORM pg_catalog.set_config('lock_timeout',
					GREATEST(1, wait - (1000::numeric * EXTRACT(epoch FROM gone))::bigint)::text, true);
			END IF;
			PERFORM pg_catalog.%s(wanted[i]);
		END LOOP;
		refused := 0;
	EXCEPTION WHEN lock_not_available THEN
		NULL;
	END;
	PERFORM pg_catalog.set_config('lock_timeout', before, true), pg_catalog.set_config('dblock.refused', refused::text, true);
END $dblock$;`

	// refusedSQL has as many rows as the number of the key that was refused: every driver returns a
	// count for a message with several statements.
	refusedSQL = "SELECT FROM pg_catalog.generate_series(1, pg_catalog.current_setting('dblock.refused')::int)"
)

// Waits that have no bound, as dblock.wait has them.
const (
	untilContextEnds = 0
	untilServerEnds  = -1
)

// errLockTimeout is what ended a wait by the server's own bound.
var errLockTimeout = errors.New("lock_timeout has passed")

// lockTx locks keys by the functions that end with mode.
func lockTx(ctx context.Context, tx Tx, mode string, wait dblock.TxWait, keys []Key) error {
	if wait == dblock.SkipLocked() {
		return &dblock.InvalidError{Field: "wait", Reason: "LockTx locks all keys or none: give NoWait not to wait"}
	}
	if err := rowlock.CheckWait("wait", wait, time.Millisecond, maxWait); err != nil {
		return err
	}
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	if err := rowlock.CheckKeys(keys); err != nil {
		return err
	}
	numbers := make([]string, len(keys))
	for i, key := range keys {
		numbers[i] = strconv.FormatInt(int64(key), 10)
	}
	statement, bound, over := keysStatement(mode, wait)
	message := fmt.Sprintf(arguments, strings.Join(numbers, ","), bound) + statement + refusedSQL
	tag, err := tx.Exec(ctx, message, pgx.QueryExecModeSimpleProtocol, postgres.CheckPath{})
	if err != nil {
		return txError(ctx, "advisory locks", err)
	}
	if n := tag.RowsAffected(); n > 0 {
		return rowlock.Held(numbers[n-1], over)
	}
	return nil
}

// keysStatement returns the statement for a wait, its bound in milliseconds, and what ends the
// wait.
func keysStatement(mode string, wait dblock.TxWait) (statement string, bound int64, over error) {
	d, bounded := root.WaitBound(wait)
	switch {
	case wait == dblock.NoWait():
		return fmt.Sprintf(tryKeys, "pg_try_advisory_xact_lock"+mode), 0, nil
	case bounded:
		bound, over = d.Milliseconds(), rowlock.Bound(d)
	case wait == dblock.WaitForContext():
		bound = untilContextEnds
	default:
		bound, over = untilServerEnds, errLockTimeout
	}
	return fmt.Sprintf(waitForKeys, "pg_advisory_xact_lock"+mode), bound, over
}
