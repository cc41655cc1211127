package pglock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/pgfault"
	"github.com/dblock-go/dblock/internal/rowlock"
)

// LockRow locks the row of a table of yours in which column has the value key, until tx ends or is rolled back to a
// savepoint from before. column has to be unique, as a primary key is. table may be qualified: "shop.seat"; names are taken
// as they are, and may contain anything but a dot. What is read of the row before it is locked may be old: read it after,
// at READ COMMITTED.
//
// Each call looks at the table in a round trip of its own, before it locks.
//
// Errors: pgx.ErrNoRows, which is sql.ErrNoRows too, where there is no such row; a *dblock.HeldError (ErrNotAcquired) where
// it was not had in time, and by SkipLocked; dblock.ErrConflict after a deadlock, and at REPEATABLE READ and above where
// the row has changed since tx began; dblock.ErrUnavailable where tx may not write; dblock.ErrUnsupported for a table that is foreign
// or has a foreign one among its partitions or, as a view, its tables; an *dblock.InvalidError. A refusal by
// NoWait, SkipLocked or a bound of Wait leaves tx as it was, ready for use; after others it has to be rolled back. Others
// are pgx's.
func LockRow[K any](ctx context.Context, tx Tx, table, column string, key K, o dblock.RowLock) error {
	if o.Wait == dblock.NoWait {
		o.Wait = dblock.SkipLocked // for one row that comes to the same, and raises no error from which tx would have to recover
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

// LockRows is LockRow for up to dblock.MaxSetKeys keys, and says which of them there are. The server locks the rows in the
// order of their keys, so that two who lock some of the same rows, in whatever order they ask, never deadlock; unless the
// keys themselves change, or tx has locked others of them before.
//
// But for SkipLocked it has all that there are, or none: a refusal undoes the rest. Its *dblock.HeldError does not say
// which row was refused.
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
	name := rowlock.Row(table, column, keys)
	equal, err := look(ctx, tx, []string{from}, column)
	if err != nil {
		return rows, txError(ctx, name, err)
	}
	read := func(answer pgx.Rows) error {
		rows.Locked, err = pgx.CollectRows(answer, pgx.RowTo[K])
		return err
	}
	// The node that locks stands above the one that sorts, so that the order of the locks is that of the keys.
	query := fmt.Sprintf("SELECT %[1]s FROM %[2]s WHERE %[1]s %[3]s ANY($1) ORDER BY %[1]s %[4]s", where, from, equal, lock)
	if err := run(ctx, tx, name, o.Wait, read, query, keys); err != nil {
		return dblock.LockedRows[K]{}, err
	}
	if o.Wait != dblock.SkipLocked || len(rows.Locked) >= len(keys) {
		return rows, nil
	}
	// Those that were skipped are there, and were not locked. This reads, and waits for nobody.
	query = fmt.Sprintf("SELECT %[1]s FROM %[2]s WHERE %[1]s %[3]s ANY($1) AND NOT %[1]s %[3]s ANY($2) ORDER BY %[1]s", where, from, equal)
	answer, err := tx.Query(ctx, query, keys, append([]K{}, rows.Locked...))
	if err == nil {
		rows.Skipped, err = pgx.CollectRows(answer, pgx.RowTo[K])
	}
	return rows, txError(ctx, name, err)
}

// tableFacts reads a foreign table among some tables, their partitions and heirs, and the tables of
// views. The server accepts FOR UPDATE there, without a word: postgres_fdw leaves NOWAIT and SKIP
// LOCKED out, and others lock nothing. Of a column of the first table it reads the schema that has
// the operators of its type, below its domains. The operators of arrays, enums, ranges and rows are
// those of pg_catalog.
const tableFacts = `WITH RECURSIVE part AS (
    SELECT pg_catalog.to_regclass(want.name)::oid AS id FROM pg_catalog.unnest($1::text[]) AS want(name)
    UNION
    SELECT more.id FROM part, LATERAL (
        SELECT i.inhrelid FROM pg_catalog.pg_inherits i WHERE i.inhparent = part.id
        UNION ALL
        SELECT d.refobjid FROM pg_catalog.pg_rewrite w
        JOIN pg_catalog.pg_depend d ON d.objid = w.oid AND d.classid = 'pg_catalog.pg_rewrite'::regclass::oid AND
            d.refclassid = 'pg_catalog.pg_class'::regclass::oid
        WHERE w.ev_class = part.id
    ) AS more(id)
), base AS (
    SELECT a.atttypid AS type FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = pg_catalog.to_regclass(($1::text[])[1])::oid AND a.attname::text = $2::text
    UNION ALL
    SELECT t.typbasetype FROM base JOIN pg_catalog.pg_type t ON t.oid = base.type AND t.typtype = 'd'
)
SELECT (SELECT c.relname::text FROM part JOIN pg_catalog.pg_class c ON c.oid = part.id WHERE c.relkind = 'f' ORDER BY c.relname LIMIT 1),
    (SELECT CASE WHEN t.typcategory = 'A' OR t.typtype IN ('c', 'e', 'm', 'r') THEN 'pg_catalog'::text
            ELSE pg_catalog.quote_ident(n.nspname::text) END
        FROM base
        JOIN pg_catalog.pg_type t ON t.oid = base.type AND t.typtype <> 'd'
        JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace)`

// look refuses tables of which some rows can't be locked. It returns the operator that compares a
// column of the first table, with its schema: a search along the search_path could choose an
// operator that another role has made for the type of the column. It asks each time, because a name
// means another table in another database or along another search_path.
func look(ctx context.Context, tx Tx, tables []string, column string) (equal string, err error) {
	answer, err := tx.Query(ctx, tableFacts, tables, column)
	if err != nil {
		return "", err
	}
	facts, err := pgx.CollectExactlyOneRow(answer, pgx.RowToStructByPos[struct{ Foreign, Home *string }])
	switch {
	case err != nil:
		return "", err
	case facts.Foreign != nil:
		return "", fmt.Errorf("%w: rows of %s can't be locked: it is a foreign table, or has one: lock them where they are",
			dblock.ErrUnsupported, *facts.Foreign)
	case facts.Home == nil:
		return "OPERATOR(pg_catalog.=)", nil // the statement says what is missing
	default:
		return "OPERATOR(" + *facts.Home + ".=)", nil
	}
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
		dblock.DefaultStrength: "FOR NO KEY UPDATE", dblock.ForUpdate: "FOR UPDATE", dblock.ForNoKeyUpdate: "FOR NO KEY UPDATE",
		dblock.ForShare: "FOR SHARE", dblock.ForKeyShare: "FOR KEY SHARE",
	}[o.Strength]
	if !ok {
		return "", &dblock.InvalidError{Field: "RowLock.Strength", Reason: fmt.Sprintf("there is no strength %d", o.Strength)}
	}
	switch o.Wait {
	case dblock.NoWait:
		clause += " NOWAIT"
	case dblock.SkipLocked:
		clause += " SKIP LOCKED"
	}
	return clause, nil
}

// run sends a statement that locks. Where a refusal would fail the transaction it stands between a savepoint and its end.
func run(
	ctx context.Context, tx Tx, name string, wait time.Duration, read func(pgx.Rows) error, query string, args ...any,
) error {
	if wait == 0 || wait == dblock.SkipLocked {
		answer, err := tx.Query(ctx, query, args...)
		if err == nil {
			err = read(answer)
		}
		return txError(ctx, name, err)
	}
	before, after := guardsOf(wait)
	err := between(ctx, tx, before, after, read, query, args)
	if !pgfault.IsLocked(err) {
		return txError(ctx, name, err)
	}
	// Settings of the transaction go back with the savepoint, too.
	const undo = "ROLLBACK TO SAVEPOINT dblock_rows; RELEASE SAVEPOINT dblock_rows"
	if _, err := tx.Exec(ctx, undo, pgx.QueryExecModeSimpleProtocol); err != nil {
		return txError(ctx, name, fmt.Errorf("after a refusal, go back to the savepoint: %w", err))
	}
	if wait == dblock.NoWait {
		return rowlock.Held(name, nil)
	}
	return rowlock.Held(name, rowlock.Bound(wait))
}

// guardsOf are the statements before and after one that may be refused.
func guardsOf(wait time.Duration) (before, after []string) {
	before = []string{"SAVEPOINT dblock_rows"}
	after = []string{"RELEASE SAVEPOINT dblock_rows"}
	if wait > 0 {
		before = append(before, "SELECT pg_catalog.set_config('dblock.lock_timeout', pg_catalog.current_setting('lock_timeout'), true)",
			"SELECT pg_catalog.set_config('lock_timeout', '"+strconv.FormatInt(wait.Milliseconds(), 10)+"', true)")
		after = append(after, "SELECT pg_catalog.set_config('lock_timeout', pg_catalog.current_setting('dblock.lock_timeout'), true)")
	}
	return before, after
}
