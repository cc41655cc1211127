package mysqloptimistic

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"

	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// Write knows the new version before it writes: the server does not return it.
func (dialect) Write(ctx context.Context, db DB, p *driver.Plan, s *driver.Stmt, r driver.Row) (rows int64, next driver.Raw, err error) {
	on, err := poolOf(ctx, db)
	if err != nil {
		return 0, next, err
	}
	if err := fits(p, r); err != nil {
		return 0, next, err
	}
	if on.locksFirst(ctx) {
		return on.write(ctx, db.(*sql.DB), p, s, r)
	}
	rows, next, err = write(ctx, db, p, s, r)
	on.left(ctx, err)
	return rows, next, err
}

// write is underLock for one row. It is a function of its own because what a closure keeps is on
// the heap: most writes need none.
func (p *pool) write(ctx context.Context, db *sql.DB, plan *driver.Plan, s *driver.Stmt, r driver.Row) (rows int64, next driver.Raw, err error) {
	err = p.underLock(ctx, db, plan, []driver.Row{r}, func(db DB) (err error) {
		rows, next, err = write(ctx, db, plan, s, r)
		return err
	})
	return rows, next, err
}

func write(ctx context.Context, db DB, p *driver.Plan, s *driver.Stmt, r driver.Row) (rows int64, next driver.Raw, err error) {
	if p.Kind == driver.Timestamp && (s.Op == driver.Update || s.Op == driver.Insert) {
		now, err := clockOf(ctx, db)
		if err != nil {
			return 0, next, err
		}
		r.Next = later(now, r.Expected)
	}
	switch {
	case s.Op == driver.UpdateAny && (p.Kind == driver.Int || p.Kind == driver.Timestamp):
		return writeAny(ctx, db, p, s, r)
	case s.Op == driver.Insert && !keeps(p.KeyColumn, r.Key):
		rows, err = insertKept(ctx, db, p, s, r)
	default:
		rows, err = execute(ctx, db, p, s, r)
	}
	if s.Op == driver.Insert && mysql.Classify(err) == sqlerr.Duplicate { // the index is in the text alone
		err = &driver.TakenError{Err: err}
	}
	if err == nil && rows == 0 && p.Kind == driver.Columns && (s.Op == driver.Update || s.Op == driver.UpdateAny) {
		rows, err = unchanged(ctx, db, p, s, r)
	}
	return rows, nextOf(p, s, r), err
}

// insertKept inserts a row, and refuses a key that the column has not kept. Without strict mode the
// server cuts what it can't keep.
func insertKept(ctx context.Context, db DB, p *driver.Plan, s *driver.Stmt, r driver.Row) (rows int64, err error) {
	const savepoint = "dblock_upsert"
	err = underRowLock(ctx, db, func(db DB) error {
		if _, err := db.ExecContext(ctx, "SAVEPOINT "+savepoint); err != nil {
			return sqlerr.Unwritten(err)
		}
		var err error
		if rows, err = execute(ctx, db, p, s, r); err != nil {
			return err
		}
		found, _, err := lockRow(ctx, db, p, s, r)
		if found.Exists {
			return nil
		}
		if err == nil {
			err = attempt.Invalid("key", "the column %q is of the type %s, and would have kept another value; nothing was written",
				p.KeyColumn.Name, p.KeyColumn.Type)
		}
		_, failed := db.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+savepoint)
		return errors.Join(err, sqlerr.Unwritten(failed))
	})
	return rows, err
}

// execute runs a statement, and returns how many rows it changed. If a pool has no connection in
// time, nothing was sent.
func execute(ctx context.Context, db DB, p *driver.Plan, s *driver.Stmt, r driver.Row) (rows int64, err error) {
	pool, ok := db.(*sql.DB)
	if !ok {
		return executeOn(ctx, db, p, s, r)
	}
	for n := 1; ; n++ {
		conn, err := pool.Conn(ctx)
		if err != nil {
			return 0, sqlerr.Unwritten(err)
		}
		rows, err = executeOn(ctx, conn, p, s, r)
		_ = conn.Close()
		if n == mysql.Attempts || !errors.Is(err, sqldriver.ErrBadConn) { // it was dead before
			return rows, err
		}
	}
}

func executeOn(ctx context.Context, db DB, p *driver.Plan, s *driver.Stmt, r driver.Row) (int64, error) {
	result, err := mysql.Exec(ctx, db, s.Text, argsOf(p, s, r)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// argsOf are the arguments of a statement, in the order of its text.
func argsOf(p *driver.Plan, s *driver.Stmt, r driver.Row) []any {
	args := make([]any, 0, 3+len(p.Token)+len(s.Names))
	if s.Op == driver.Insert {
		args = append(args, r.Key)
	}
	for _, name := range s.Names {
		args = append(args, r.Set[name])
	}
	switch {
	case s.Op == driver.Delete || s.Op == driver.DeleteAny:
	case p.Kind == driver.UUID:
		args = append(args, uuid(p.Token[0], r.Next.U))
	case p.Kind == driver.Timestamp:
		args = append(args, instant(r.Next.N))
	}
	if s.Op != driver.Insert {
		args = append(args, r.Key)
	}
	if s.Op == driver.Update || s.Op == driver.Delete {
		args = expected(args, p, r.Expected)
	}
	return args
}

// nextOf is the version that a write gives a row.
func nextOf(p *driver.Plan, s *driver.Stmt, r driver.Row) driver.Raw {
	switch {
	case p.Kind == driver.Int && s.Op == driver.Insert:
		return driver.Raw{N: p.First}
	case p.Kind == driver.Int:
		return driver.Raw{N: r.Expected.N + 1}
	case p.Kind != driver.Columns:
		return r.Next
	}
	values := make([]any, len(p.Token)) // those expected with those in their place that were set
	copy(values, r.Expected.Values)
	for i, c := range p.Token {
		for j := range s.Columns {
			if s.Columns[j].Name == c.Name {
				values[i] = r.Set[s.Names[j]]
			}
		}
	}
	return driver.Raw{Values: values}
}

// later is the time of a clock, or the one after a version, whichever is later.
func later(now int64, version driver.Raw) driver.Raw { return driver.Raw{N: max(now, version.N+1)} }

// clockOf reads the server's clock, in microseconds since 1970.
func clockOf(ctx context.Context, db DB) (now int64, err error) {
	err = db.QueryRowContext(ctx, "SELECT "+clock+" LIMIT 1").Scan(&now)
	return now, sqlerr.Unwritten(err)
}

// writeAny reads the version of a row and writes the row at that version. If another write came in
// between, it does so again, with the row locked.
func writeAny(ctx context.Context, db DB, p *driver.Plan, s *driver.Stmt, r driver.Row) (rows int64, next driver.Raw, err error) {
	at := &driver.Stmt{Op: driver.Update, Text: s.Text, Columns: s.Columns, Names: s.Names}
	changed := true
	try := func(db DB) error {
		rows, changed = 0, false
		found, now, err := lockRow(ctx, db, p, at, r)
		if err != nil || !found.Exists || !hasNext(p, found.Version) {
			return sqlerr.Unwritten(err)
		}
		r.Expected = found.Version
		if p.Kind == driver.Timestamp {
			r.Next = later(now, r.Expected)
		}
		next = nextOf(p, at, r)
		rows, err = execute(ctx, db, p, at, r)
		changed = rows == 0
		return err
	}
	if err = try(db); err == nil && changed {
		err = underRowLock(ctx, db, try)
	}
	return rows, next, err
}

// hasNext reports that a version is one, and is not the last that the column can hold.
func hasNext(p *driver.Plan, v driver.Raw) bool {
	if p.Kind == driver.Int { // some modes cut what is beyond the last version
		return !v.Void && v.N >= p.First && uint64(v.N) < p.Token[0].Max
	}
	return !v.Void && v.N < driver.LastMoment
}

// unchanged returns how many rows a statement has found that has changed none: 1 if the row has the
// values expected, and those that are to be set as well. The server counts rows that have changed.
func unchanged(ctx context.Context, db DB, p *driver.Plan, s *driver.Stmt, r driver.Row) (rows int64, err error) {
	isAt := func(db DB) (bool, error) {
		found, _, err := lockRow(ctx, db, p, s, r)
		return found.Held || s.Op == driver.UpdateAny && found.Exists, sqlerr.Unwritten(err)
	}
	if found, err := isAt(db); err != nil || !found {
		return 0, err
	}
	err = underRowLock(ctx, db, func(db DB) error {
		found, err := isAt(db)
		if rows = 0; err != nil || !found {
			return err
		}
		rows = 1
		_, err = execute(ctx, db, p, s, r)
		return err
	})
	return rows, err
}

// lockRow locks one row, within a transaction, and reads it and the server's clock: see look.
func lockRow(ctx context.Context, db DB, p *driver.Plan, s *driver.Stmt, r driver.Row) (driver.Found, int64, error) {
	if p.Kind == driver.Columns && r.Expected.Sent == nil { // of a write that expects no version
		r.Expected.Sent = make([]any, len(p.Token))
	}
	b := batch{p: p, s: s, rows: []driver.Row{r}, found: make([]driver.Found, 1)}
	now, err := b.lockRows(ctx, db)
	return b.found[0], now, err
}

// first has the first row of a query scanned, if there is one.
func first(ctx context.Context, db DB, text string, args []any, scan func(*mysql.Rows) error) (found bool, err error) {
	rows, err := mysql.Query(ctx, db, text, args...)
	if err != nil {
		return false, err
	}
	defer func() { _ = rows.Close() }()
	if found = rows.Next(); found {
		err = scan(rows)
	}
	return found, errors.Join(err, rows.Err())
}

// underRowLock runs fn if the lock of a row lasts until fn has returned: in the transaction that db
// is, or in one of its own.
func underRowLock(ctx context.Context, db DB, fn func(DB) error) error {
	switch db := db.(type) {
	case *sql.DB:
		return inTx(ctx, db, func(tx *sql.Tx) error { return fn(tx) })
	case *sql.Conn:
		inTx, err := isInTx(ctx, db)
		if err != nil || inTx {
			if err == nil {
				err = fn(db)
			}
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return sqlerr.Unwritten(err)
		}
		if err = fn(tx); err == nil {
			err = tx.Commit()
		}
		if err != nil && tx.Rollback() != nil { // the transaction may be open: the connection is closed
			mysql.Discard(db)
		}
		return err
	}
	return fn(db)
}

// isInTx reports whether a connection is in a transaction: outside of one a savepoint is gone at
// once.
func isInTx(ctx context.Context, conn *sql.Conn) (bool, error) {
	const mark = "dblock_in_tx"
	if _, err := conn.ExecContext(ctx, "SAVEPOINT "+mark); err != nil {
		return false, sqlerr.Unwritten(err)
	}
	_, err := conn.ExecContext(ctx, "RELEASE SAVEPOINT "+mark)
	if mysql.IsNoSavepoint(err) {
		return false, nil
	}
	return err == nil, sqlerr.Unwritten(err)
}
