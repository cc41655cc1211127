package pglock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/rowlock"
)

// LockRow locks the row of a table of yours in which column has the value key, until tx ends or is
// rolled back to a savepoint from before. column has to be unique, as a primary key is. table may
// be qualified: "shop.seat"; names are taken as they are, and may contain anything but a dot. What
// is read of the row before it is locked may be old: read it after, at READ COMMITTED.
//
// Each call looks at the table behind the lock, in the same message; over SQLTx, and in pgx's modes
// exec and simple_protocol with keys that are neither strings nor ints, in one more. The first call
// for a column looks before it locks, too. dblock.NoWait for several rows, WaitAtMost and
// WaitForContext take one more message. What a call finds decides about this call alone: table may
// be another one elsewhere, and along another search_path.
//
// Errors: pgx.ErrNoRows, which is sql.ErrNoRows too, if there is no such row. A *dblock.HeldError
// (ErrNotAcquired) if it was not locked in time, and by dblock.SkipLocked. dblock.ErrConflict after
// a deadlock, and if column had another type in the call before. So it is at REPEATABLE READ and
// above if the row has changed, or the table was made, since tx began. dblock.ErrUnavailable if tx
// may not write. dblock.ErrUnsupported for a view, of which the server may lock no rows or all of
// them, and for a table that is foreign or has a foreign one among its partitions. At REPEATABLE
// READ and above one that was attached since tx began is not noticed. An *dblock.InvalidError. A
// refusal by dblock.NoWait, SkipLocked or WaitAtMost leaves tx as it was, ready for use; after
// others it has to be rolled back. Others are pgx's.
func LockRow[K any](ctx context.Context, tx Tx, table, column string, key K, o dblock.RowLock) error {
	if o.Wait == dblock.NoWait() {
		o.Wait = dblock.SkipLocked() // for one row that comes to the same, and raises no error from which tx would have to recover
	}
	rows, err := LockRows(ctx, tx, table, column, []K{key}, o)
	switch {
	case err != nil || len(rows.Locked) > 0:
		return err
	case len(rows.Skipped) > 0:
		return rowlock.Held(rowlock.Row(table, column, []K{key}), nil)
	default:
		return fmt.Errorf("dblock: there is no %s: %w", rowlock.Row(table, column, []K{key}), pgx.ErrNoRows)
	}
}

// LockRows is LockRow for up to dblock.MaxSetKeys keys, and says which of them there are. The
// server locks the rows in the order of their keys, so that two calls for some of the same rows, in
// any order, never deadlock; unless the keys themselves change, or tx has locked others of them
// before.
//
// The result lists each key as it was given, also if its row spells it in another way.
//
// Without dblock.SkipLocked it locks all rows that there are, or none: a refusal undoes the rest.
// Its *dblock.HeldError does not say which row was refused.
func LockRows[K any](ctx context.Context, tx Tx, table, column string, keys []K, o dblock.RowLock) (dblock.LockedRows[K], error) {
	var rows dblock.LockedRows[K]
	from, where, err := tableOf(table, column)
	if err != nil {
		return rows, err
	}
	lock, err := lockClause(o)
	if err != nil {
		return rows, err
	}
	if err := rowlock.CheckKeys(keys); err != nil {
		return rows, err
	}
	tx = forKeys(tx, keys)
	name := rowlock.Row(table, column, keys)
	view, err := viewOf(ctx, tx, from, column)
	if err != nil {
		return rows, txError(ctx, name, err)
	}
	var locked []int64 // which of the keys
	read := func(answer pgx.Rows) error {
		locked, err = pgx.CollectRows(answer, pgx.RowTo[int64])
		return err
	}
	locking := func() error {
		return run(ctx, tx, view, name, o.Wait, read, rowsQuery(from, where, view.equal, lock, len(keys)), keys)
	}
	err = locking()
	again, err := view.after(err)
	if again {
		err = locking()
	}
	if err != nil {
		return dblock.LockedRows[K]{}, err
	}
	rows.Locked, keys = divided(keys, locked)
	if o.Wait != dblock.SkipLocked() || len(keys) == 0 {
		return rows, nil
	}
	// Rows that were skipped exist, and were not locked. This reads, and never waits.
	answer, err := tx.Query(ctx, rowsQuery(from, where, view.equal, "", len(keys)), keys)
	if err == nil {
		err = read(answer)
	}
	if err != nil {
		return rows, txError(ctx, name, err)
	}
	rows.Skipped, _ = divided(keys, locked)
	return rows, nil
}

// rowsQuery is a query for the rows of n keys that returns which keys they are of, counted from 1.
// Only the server knows: to it 1 and 1.00 are the same, for example. The node that locks stands
// above the one that sorts, so that the order of the locks is that of the keys. COALESCE gives the
// keys the type of the column, also if the query contains them as text.
func rowsQuery(from, where, equal, lock string, n int) string {
	const (
		one = "SELECT 1::bigint FROM %[2]s WHERE %[1]s %[3]s ANY($1) ORDER BY %[1]s %[4]s"
		all = "WITH found(key) AS (SELECT %[1]s FROM %[2]s WHERE %[1]s %[3]s ANY($1) ORDER BY %[1]s %[4]s) " +
			"SELECT asked.place FROM found JOIN pg_catalog.unnest(COALESCE($1, (SELECT pg_catalog.array_agg(key) FROM found))) " +
			"WITH ORDINALITY AS asked(key, place) ON found.key %[3]s asked.key ORDER BY found.key, asked.place"
	)
	if n == 1 {
		return fmt.Sprintf(one, where, from, equal, lock)
	}
	return fmt.Sprintf(all, where, from, equal, lock)
}

// divided are the keys at places, in their order, each once, and the others.
func divided[K any](keys []K, places []int64) (at, others []K) {
	seen := make([]bool, len(keys))
	for _, place := range places {
		if i := place - 1; !seen[i] {
			seen[i], at = true, append(at, keys[i])
		}
	}
	for i, key := range keys {
		if !seen[i] {
			others = append(others, key)
		}
	}
	return at, others
}

func tableOf(table, column string) (from, where string, err error) {
	if from, err = rowlock.Table(table, `"`); err == nil {
		where, err = rowlock.Name("column", column, `"`)
	}
	return from, where, err
}

func lockClause(o dblock.RowLock) (string, error) {
	if err := rowlock.CheckWait("RowLock.Wait", o.Wait, time.Millisecond, maxWait); err != nil {
		return "", err
	}
	clause, ok := map[dblock.Strength]string{
		dblock.StrengthDefault: "FOR NO KEY UPDATE", dblock.StrengthUpdate: "FOR UPDATE", dblock.StrengthNoKeyUpdate: "FOR NO KEY UPDATE",
		dblock.StrengthShare: "FOR SHARE", dblock.StrengthKeyShare: "FOR KEY SHARE",
	}[o.Strength]
	if !ok {
		return "", &dblock.InvalidError{Field: "RowLock.Strength", Reason: fmt.Sprintf("there is no strength %d", o.Strength)}
	}
	switch o.Wait {
	case dblock.NoWait():
		clause += " NOWAIT"
	case dblock.SkipLocked():
		clause += " SKIP LOCKED"
	}
	return clause, nil
}

// run sends a statement that locks. If a refusal would fail the transaction, the statement stands
// between a savepoint and its end.
func run(
	ctx context.Context, tx Tx, view *view, name string, wait dblock.TxWait, read func(pgx.Rows) error, query string, args ...any,
) error {
	before, after := guardsOf(wait)
	err := aroundSavepoint(ctx, tx, view, before, after, read, query, args)
	if notEncoded(err) && len(after) > 0 { // the query was not sent, and what stands before it was
		_, failed := tx.Exec(ctx, strings.Join(after, "; "), pgx.QueryExecModeSimpleProtocol)
		return errors.Join(txError(ctx, name, err), failed)
	}
	bound, bounded := root.WaitBound(wait)
	if refusable := bounded || wait == dblock.NoWait(); !refusable || !postgres.IsLocked(err) {
		return txError(ctx, name, err)
	}
	// Settings of the transaction go back with the savepoint, too.
	const undo = "ROLLBACK TO SAVEPOINT dblock_rows; RELEASE SAVEPOINT dblock_rows"
	if _, err := tx.Exec(ctx, undo, pgx.QueryExecModeSimpleProtocol); err != nil {
		return txError(ctx, name, fmt.Errorf("after a refusal, go back to the savepoint: %w", err))
	}
	if bounded {
		return rowlock.Held(name, rowlock.Bound(bound))
	}
	return rowlock.Held(name, nil)
}

// guardsOf are the statements before and after one that locks: a savepoint for one that may be
// refused, and lock_timeout for one that waits in another way than the server's.
func guardsOf(wait dblock.TxWait) (before, after []string) {
	bound, bounded := root.WaitBound(wait)
	if bounded || wait == dblock.NoWait() {
		before, after = append(before, "SAVEPOINT dblock_rows"), append(after, "RELEASE SAVEPOINT dblock_rows")
	}
	if bounded || wait == dblock.WaitForContext() {
		before = append(before, postgres.KeepLockTimeout,
			"SELECT pg_catalog.set_config('lock_timeout', '"+strconv.FormatInt(bound.Milliseconds(), 10)+"', true)")
		after = append(after, postgres.RestoreLockTimeout)
	}
	return before, after
}
