package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/rowlock"
)

// maxWait is the longest innodb_lock_wait_timeout that both servers take, three years.
const maxWait = 100_000_000 * time.Second

// LockRow locks the row of a table of yours in which column has the value key, until tx ends.
// column has to be unique, as a primary key is, and there must be an index that begins with it.
// table may be qualified: "shop.seat"; names are taken as they are, and may contain anything but a
// dot. What is read of the row before it is locked may be old, and at REPEATABLE READ, the default,
// stays old: read it after, with a lock, or begin tx at READ COMMITTED.
//
// MySQL and MariaDB have no locks of names that end with a transaction: where Postgres has
// pglock.LockTx, lock a row.
//
// dblock.WaitAtMost and WaitForContext take two more round trips. On MySQL they set
// innodb_lock_wait_timeout and set it back. If the context of BeginTx ends between the two, the
// connection goes back to its pool with that bound: end such a wait by the context of LockRow, or
// close the connection. On MariaDB the bound goes with the statement alone. Where the server runs
// with innodb_rollback_on_timeout, which is off by default, a wait that times out ends tx as well.
// If ctx ends the wait, the driver closes the connection, and tx is lost.
//
// Errors: sql.ErrNoRows if there is no such row. A *dblock.HeldError (ErrNotAcquired) if it was not
// locked in time, and by dblock.SkipLocked. A *ScanError if there is no index. dblock.ErrConflict
// after a deadlock, and if MariaDB's innodb_snapshot_isolation finds the row changed: roll back.
// dblock.ErrUnsupported for a Strength that only Postgres has, for a view, and for a table of
// another engine than InnoDB (MyISAM, Aria, MEMORY: no row of theirs is ever locked).
// dblock.ErrUnavailable if tx may not write. An *dblock.InvalidError. After a refusal tx is as it
// was, ready for use. Others are the driver's.
//
// RowLock.Scan takes one round trip more, which reads whether the table is still one whose rows can
// be locked. If it is not, rows may stay locked until tx ends.
func LockRow[K any](ctx context.Context, tx *sql.Tx, table, column string, key K, o dblock.RowLock) error {
	if o.Wait == dblock.SkipLocked() {
		o.Wait = dblock.NoWait() // for one row that comes to the same
	}
	rows, err := LockRows(ctx, tx, table, column, []K{key}, o)
	if err == nil && len(rows.Locked) == 0 {
		err = fmt.Errorf("dblock: there is no %s: %w", rowlock.Row(table, column, []K{key}), sql.ErrNoRows)
	}
	return err
}

// LockRows is LockRow for up to dblock.MaxSetKeys keys, and says which of them there are. The
// server locks the rows in the order of an index, so that two calls for some of the same rows, in
// any order, never deadlock; unless the keys themselves change, or tx has locked others of them
// before. The rows of a partitioned table are locked and returned partition by partition, which
// takes two more round trips, and one for each partition that the keys may be in.
//
// If the index has all columns of the table, MySQL may lock all of its rows for a third of them: at
// REPEATABLE READ they stay locked.
//
// The result lists each key as it was given, also if its row spells it in another way. Skipped is
// in the order of keys.
//
// A refusal is of all: its *dblock.HeldError does not say which row it was. The rows before that
// one may stay locked until tx ends, as InnoDB gives no lock back before. With dblock.SkipLocked
// each key that was not had takes one more round trip, which reports whether there is such a row.
func LockRows[K any](
	ctx context.Context, tx *sql.Tx, table, column string, keys []K, o dblock.RowLock,
) (rows dblock.LockedRows[K], err error) {
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
	var locked []int
	l := locking[K]{tx: tx, from: from, where: where, lock: lock}
	if o.Wait == dblock.NoWait() || o.Wait == dblock.SkipLocked() {
		l.bound, l.hint = "/*M! SET STATEMENT lock_wait_timeout = 1 FOR */ ", mysql.TableBound
	}
	bound := boundOf(o.Wait)
	if bound > 0 {
		l.bound = fmt.Sprintf("/*M! SET STATEMENT innodb_lock_wait_timeout = %d, lock_wait_timeout = %d FOR */ ",
			bound/time.Second, tableWait(bound))
	}
	for range 2 {
		err = within(ctx, tx, bound, func() (err error) {
			if l.access, err = accessTo(ctx, tx, from, where, column, keys[0], o.Scan); err == nil {
				locked, err = l.rows(ctx, keys)
			}
			if err == nil && o.Scan { // no index was named that a view would lack
				_, err = lockable(ctx, tx, from)
			}
			return err
		})
		if n := mysql.ErrorNumber(err); n != mysql.NoSuchIndex && n != mysql.NoSuchColumn {
			break
		}
		// The index was dropped, or the column that is read beside it, or this is another database.
		verdicts.remove(verdictOf(from, where, keys[0]))
	}
	switch {
	case mysql.IsLocked(err) && o.Wait == dblock.NoWait():
		return dblock.LockedRows[K]{}, rowlock.Held(name, nil)
	case mysql.IsLocked(err) && bound > 0:
		return dblock.LockedRows[K]{}, rowlock.Held(name, rowlock.Bound(bound))
	case err != nil:
		return dblock.LockedRows[K]{}, txError(ctx, name, err)
	}
	for _, i := range locked {
		rows.Locked = append(rows.Locked, keys[i])
	}
	if o.Wait == dblock.SkipLocked() {
		err = txError(ctx, name, l.skipped(ctx, keys, locked, &rows))
	}
	return rows, err
}

// locking is the statement that locks rows, but for their keys.
type locking[K any] struct {
	access
	tx                *sql.Tx
	from, where, lock string // names are quoted
	bound             string // of the wait on MariaDB, which takes it with the statement; see within
	hint              string // of one that waits for no row; MariaDB passes over it
}

// inOne is how many keys stand in one IN: of a thousand MariaDB would make a table of its own, and
// lose their order.
const inOne = 500

// rows locks, and returns which keys the rows are of. The locks are taken in the order of the index
// that is read, and not in that of ORDER BY: so it has to be that of the keys, on however small a
// table. A table's partitions have an index each, and are read one after the other.
func (l locking[K]) rows(ctx context.Context, keys []K) (locked []int, err error) {
	parts := []string{""}
	if l.partitioned && len(keys) > 1 {
		if parts, err = l.parts(ctx, keys); err != nil {
			return nil, err
		}
	}
	seen := make([]bool, len(keys))
	for _, part := range parts {
		query, args := l.query(keys, part)
		answer, err := mysql.Query(ctx, l.tx, l.bound+query+" "+l.lock, args...)
		rows, err := collect(answer, err, l.marks)
		if err != nil {
			return nil, err
		}
		for _, i := range slices.Concat(rows...) {
			if !seen[i] {
				seen[i], locked = true, append(locked, i)
			}
		}
	}
	return locked, nil
}

// query reads which of keys the rows are of, without a lock; part is empty for all partitions. It
// reads a column that the index lacks: of one that has all that it reads MySQL would scan the
// whole, for a third of its rows, and lock them.
func (l locking[K]) query(keys []K, part string) (string, []any) {
	var query strings.Builder
	query.WriteString("SELECT " + l.hint)
	args := mark(&query, l.where, keys)
	if l.unindexed != "" {
		fmt.Fprintf(&query, ", LENGTH(%s)", l.unindexed)
	}
	fmt.Fprintf(&query, " FROM %s ", l.from)
	if part != "" {
		fmt.Fprintf(&query, "PARTITION (%s) ", part)
	}
	if l.index != "" {
		fmt.Fprintf(&query, "FORCE INDEX (%s) ", l.index)
	}
	query.WriteString("WHERE ")
	for i := range keys {
		args = append(args, keys[i])
		switch {
		case i == 0:
			fmt.Fprintf(&query, "%s IN (?", l.where)
		case i%inOne == 0:
			fmt.Fprintf(&query, ") OR %s IN (?", l.where)
		default:
			query.WriteString(", ?")
		}
	}
	fmt.Fprintf(&query, ") ORDER BY %s LIMIT %s", l.where, mysql.AllRows)
	return query.String(), args
}

// inMark is how many keys are compared with a row one by one. Of more the server searches for the
// row's key first.
const inMark = 32

// mark writes an expression that has a character for each key: 1 for those that the row is of. Only
// the server knows that: it may compare without regard to case, and several keys may be the same to
// it. A point stands for inMark keys that the row is not of. A key may be NULL, of a driver.Valuer.
func mark[K any](query *strings.Builder, where string, keys []K) (args []any) {
	if len(keys) == 1 {
		query.WriteString("'1'")
		return nil
	}
	list := func(term string, keys []K) {
		query.WriteString(term + strings.Repeat(", "+term, len(keys)-1) + ")")
		for i := range keys {
			args = append(args, keys[i])
		}
	}
	query.WriteString("CONCAT(")
	if len(keys) <= inMark {
		list(where+" <=> ?", keys)
		return args
	}
	between := ""
	for some := range slices.Chunk(keys, inMark) {
		fmt.Fprintf(query, "%sIF(%s IN (", between, where)
		list("?", some)
		query.WriteString(", CONCAT(")
		list(where+" <=> ?", some)
		query.WriteString(", '.')")
		between = ", "
	}
	query.WriteString(")")
	return args
}

// marks reads a row of query.
func (l locking[K]) marks(r *sql.Rows) (of []int, err error) {
	var text string
	places := []any{&text}
	if l.unindexed != "" {
		places = append(places, new(sql.NullInt64))
	}
	if err := r.Scan(places...); err != nil {
		return nil, err
	}
	i := 0
	for _, sign := range text {
		if sign == '.' {
			i += inMark
			continue
		}
		if sign == '1' {
			of = append(of, i)
		}
		i++
	}
	return of, nil
}

// parts are the partitions that keys may be in, in quotes and in the order of the table's
// definition. One empty name stands for all.
func (l locking[K]) parts(ctx context.Context, keys []K) ([]string, error) {
	query, args := l.query(keys, "")
	plan, err := mysql.ShowOf(ctx, l.tx, "EXPLAIN /*M! PARTITIONS */ /*!80000 FORMAT=TRADITIONAL */ "+query, args...)
	if err != nil || len(plan) != 1 || plan[0]["partitions"] == "" { // of one key there may be a constant instead
		return []string{""}, err
	}
	all, err := mysql.Partitions(ctx, l.tx, l.from)
	if err != nil {
		return nil, err
	}
	touched := strings.Split(plan[0]["partitions"], ",")
	var parts, every []string
	for _, p := range all {
		name, err := rowlock.Name("partition", p.Name, "`")
		if err != nil {
			return nil, err
		}
		every = append(every, name)
		if slices.Contains(touched, p.InPlan) {
			parts = append(parts, name)
		}
	}
	if len(parts) != len(touched) { // a name has a comma
		return every, nil
	}
	return parts, nil
}

// skipped separates the keys that were not locked: those of rows that other transactions have
// locked, and those without a row. A plain read would show all at once, but waits for others at
// SERIALIZABLE.
func (l locking[K]) skipped(ctx context.Context, keys []K, locked []int, rows *dblock.LockedRows[K]) error {
	l.lock = strings.TrimSuffix(l.lock, "SKIP LOCKED") + "NOWAIT"
	for i, key := range keys {
		if slices.Contains(locked, i) {
			continue
		}
		found, err := l.rows(ctx, []K{key})
		switch {
		case mysql.IsLocked(err):
			rows.Skipped = append(rows.Skipped, key)
		case err != nil:
			return err
		case len(found) > 0: // it has become free
			rows.Locked = append(rows.Locked, key)
		}
	}
	return nil
}

func collect[T any](rows *mysql.Rows, err error, scan func(*sql.Rows) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []T
	for rows.Next() {
		row, err := scan(rows.Rows)
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

func tableOf(table, column string) (from, where string, err error) {
	if from, err = rowlock.Table(table, "`"); err == nil {
		where, err = rowlock.Name("column", column, "`")
	}
	return from, where, err
}

// lockClause is for both servers: MySQL takes what stands behind M! for a comment, and MariaDB what
// stands behind !80000.
func lockClause(o dblock.RowLock) (string, error) {
	if err := rowlock.CheckWait("RowLock.Wait", o.Wait, time.Second, maxWait); err != nil {
		return "", err
	}
	var clause string
	switch o.Strength {
	case dblock.StrengthDefault, dblock.StrengthUpdate:
		clause = "FOR UPDATE"
	case dblock.StrengthShare:
		clause = "/*!80000 FOR SHARE */ /*M! LOCK IN SHARE MODE */"
	case dblock.StrengthNoKeyUpdate, dblock.StrengthKeyShare:
		return "", fmt.Errorf("%w: only Postgres has FOR NO KEY UPDATE and FOR KEY SHARE: use StrengthUpdate and StrengthShare", dblock.ErrUnsupported)
	default:
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

// boundOf returns for how long a statement waits; 0: while the server's own bound lasts, or not at
// all. For the context it waits as long as the servers can.
func boundOf(wait dblock.TxWait) time.Duration {
	if wait == dblock.WaitForContext() {
		return maxWait
	}
	bound, _ := root.WaitBound(wait)
	return bound
}

// tableWait is a lock_wait_timeout in seconds, of which both servers take a year at most.
func tableWait(wait time.Duration) time.Duration { return min(wait, 365*24*time.Hour) / time.Second }

// within has statements of this session wait no longer than that on MySQL, where it is a bound.
// MariaDB takes a bound with the statement, and passes over the comments that MySQL reads.
func within(ctx context.Context, tx *sql.Tx, wait time.Duration, statement func() error) error {
	if wait <= 0 {
		return statement()
	}
	set := fmt.Sprintf("SET @dblock_wait = @@SESSION.innodb_lock_wait_timeout, @dblock_table_wait = @@SESSION.lock_wait_timeout "+
		"/*!80000 , SESSION innodb_lock_wait_timeout = %d, SESSION lock_wait_timeout = %d */", wait/time.Second, tableWait(wait))
	const back = "SET /*!80000 SESSION innodb_lock_wait_timeout = @dblock_wait, " +
		"SESSION lock_wait_timeout = @dblock_table_wait, */ @dblock_wait = NULL, @dblock_table_wait = NULL"
	return mysql.Between(ctx, tx, set, back, statement)
}
