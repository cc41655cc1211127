package mysqloptimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// Write knows the new version before it writes: the server does not return it, and LAST_INSERT_ID() is
// that of a trigger as soon as one inserts a row.
func (dialect) Write(ctx context.Context, db DB, p *driver.Plan, w driver.Write) (int64, driver.Raw, error) {
	if err := checkPool(ctx, db); err != nil {
		return 0, driver.Raw{}, err
	}
	if err := fits(p, w.Key, w.Set); err != nil {
		return 0, driver.Raw{}, err
	}
	blind := w.Stmt.Op == driver.UpdateAny
	if blind && (p.Kind == driver.Int || p.Kind == driver.Timestamp) {
		return writeAny(ctx, db, p, w)
	}
	if p.Kind == driver.Timestamp && (w.Stmt.Op == driver.Update || w.Stmt.Op == driver.Insert) {
		now, err := clockOf(ctx, db)
		if err != nil {
			return 0, driver.Raw{}, err
		}
		w.Next = later(now, w.Expected)
	}
	if w.Stmt.Op == driver.Insert && !keeps(p.KeyColumn, w.Key) {
		return insertKept(ctx, db, p, w)
	}
	rows, last, err := execute(ctx, db, p, w)
	if w.Stmt.Op == driver.Insert && mysql.Classify(err) == sqlerr.Duplicate { // the index is in the text alone
		return 0, driver.Raw{}, &driver.TakenError{Err: err}
	}
	if err != nil {
		return 0, driver.Raw{}, err
	}
	if p.Kind == driver.Columns && rows == 0 && (blind || w.Stmt.Op == driver.Update) {
		// The server counts rows that have changed. If it says that LAST_INSERT_ID was set, it has
		// found the row. Otherwise a trigger may have reset that.
		if rows = 1; last == 0 {
			rows, err = unchanged(ctx, db, p, w)
		}
	}
	return rows, nextOf(p, w), err
}

// insertKept inserts a row, and refuses a key that the column has not kept. Without strict mode the
// server cuts what it can't keep.
func insertKept(ctx context.Context, db DB, p *driver.Plan, w driver.Write) (rows int64, next driver.Raw, err error) {
	const savepoint = "dblock_upsert"
	err = underRowLock(ctx, db, func(db DB) error {
		if _, err := db.ExecContext(ctx, "SAVEPOINT "+savepoint); err != nil {
			return sqlerr.Unwritten(err)
		}
		var err error
		if rows, _, err = execute(ctx, db, p, w); err != nil {
			return err
		}
		kept, err := isAt(ctx, db, p, w, "")
		if kept {
			return nil
		}
		if err == nil {
			err = refused("key", "the column %q is of the type %s, and would have kept another value; nothing was written",
				p.KeyColumn.Name, p.KeyColumn.Type)
		}
		_, failed := db.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+savepoint)
		return errors.Join(err, sqlerr.Unwritten(failed))
	})
	if mysql.Classify(err) == sqlerr.Duplicate {
		err = &driver.TakenError{Err: err}
	}
	return rows, nextOf(p, w), err
}

// execute runs the statement of w, and returns the two numbers that the server answers with.
func execute(ctx context.Context, db DB, p *driver.Plan, w driver.Write) (rows, last int64, err error) {
	result, err := mysql.Exec(ctx, db, w.Stmt.Text, argsOf(p, w)...)
	if err != nil {
		return 0, 0, err
	}
	if rows, err = result.RowsAffected(); err != nil {
		return 0, 0, err
	}
	last, err = result.LastInsertId()
	return rows, last, err
}

// argsOf are the arguments of a statement, in the order of its text.
func argsOf(p *driver.Plan, w driver.Write) []any {
	args := make([]any, 0, 3+len(p.Token)+len(w.Stmt.Names))
	op := w.Stmt.Op
	if op == driver.Insert {
		args = append(args, w.Key)
	}
	for _, name := range w.Stmt.Names {
		args = append(args, w.Set[name])
	}
	if op != driver.Delete && op != driver.DeleteAny {
		switch p.Kind {
		case driver.UUID:
			args = append(args, uuid(p.Token[0], w.Next.U))
		case driver.Timestamp:
			args = append(args, instant(w.Next.N))
		}
	}
	if op != driver.Insert {
		args = append(args, w.Key)
	}
	if op == driver.Update || op == driver.Delete {
		args = expected(args, p, w.Expected)
	}
	return args
}

// nextOf is the version that w gives a row.
func nextOf(p *driver.Plan, w driver.Write) driver.Raw {
	switch {
	case p.Kind == driver.Int && w.Stmt.Op == driver.Insert:
		return driver.Raw{N: p.First}
	case p.Kind == driver.Int:
		return driver.Raw{N: w.Expected.N + 1}
	case p.Kind == driver.Columns:
		return driver.Raw{Values: became(p, w.Stmt, w.Expected, w.Set)}
	}
	return w.Next
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
func writeAny(ctx context.Context, db DB, p *driver.Plan, w driver.Write) (rows int64, next driver.Raw, err error) {
	changed := true
	try := func(db DB) error {
		rows, changed = 0, false
		version, now, ok, err := lockVersion(ctx, db, p, w.Key)
		if err != nil || !ok {
			return sqlerr.Unwritten(err)
		}
		w.Expected, w.Next = version, later(now, version)
		w.Stmt = &driver.Stmt{Op: driver.Update, Text: w.Stmt.Text, Columns: w.Stmt.Columns, Names: w.Stmt.Names}
		next = nextOf(p, w)
		rows, _, err = execute(ctx, db, p, w)
		changed = rows == 0
		return err
	}
	if err = try(db); err == nil && changed {
		err = underRowLock(ctx, db, try)
	}
	return rows, next, err
}

// lockVersion reads the version of a row and the server's clock. It locks the row, within a transaction.
// It is not ok if there is no row, or if its version has no next one.
func lockVersion(ctx context.Context, db DB, p *driver.Plan, key any) (r driver.Raw, now int64, ok bool, err error) {
	text := fmt.Sprintf("SELECT %s, %s FROM %s WHERE %s = ? LIMIT %s FOR UPDATE", clock, strings.Join(read(p), ", "), p.From, quoted(p.Key), mysql.AllRows)
	rows, err := mysql.Query(ctx, db, text, key)
	if err != nil {
		return r, 0, false, err
	}
	defer func() { _ = rows.Close() }()
	void := true
	if rows.Next() {
		v := versions(p)
		if err := rows.Scan(append([]any{&now}, v.places...)...); err != nil {
			return r, 0, false, err
		}
		if r, void, err = v.raw(p); err != nil {
			return r, 0, false, err
		}
	}
	if ok = r.N < driver.LastMoment; p.Kind == driver.Int { // some modes cut what is beyond the last version
		ok = r.N >= p.First && uint64(r.N) < p.Token[0].Max
	}
	return r, now, ok && !void, rows.Err()
}

// unchanged tells how many rows a statement has found that has changed none: 1 if the row has the values
// expected, and those that are to be set as well.
func unchanged(ctx context.Context, db DB, p *driver.Plan, w driver.Write) (rows int64, err error) {
	if found, err := isAt(ctx, db, p, w, "LOCK IN SHARE MODE"); err != nil || !found {
		return 0, err
	}
	err = underRowLock(ctx, db, func(db DB) error {
		found, err := isAt(ctx, db, p, w, "FOR UPDATE")
		if rows = 0; err != nil || !found {
			return err
		}
		_, _, err = execute(ctx, db, p, w)
		rows = 1
		return err
	})
	return rows, err
}

// isAt tells whether there is a row with the key, at the version expected if there is one.
func isAt(ctx context.Context, db DB, p *driver.Plan, w driver.Write, lock string) (bool, error) {
	text, args := fmt.Sprintf("SELECT 1 FROM %s WHERE %s = ?", p.From, quoted(p.Key)), []any{w.Key}
	if w.Stmt.Op == driver.Update {
		text, args = text+" AND "+matches(p), expected(args, p, w.Expected)
	}
	rows, err := mysql.Query(ctx, db, text+" LIMIT "+mysql.AllRows+" "+lock, args...)
	if err != nil {
		return false, sqlerr.Unwritten(err)
	}
	defer func() { _ = rows.Close() }()
	found := rows.Next()
	return found, sqlerr.Unwritten(rows.Err())
}

// underRowLock runs fn if the lock of a row lasts until fn has returned: in the transaction that db
// is, or in one of its own.
func underRowLock(ctx context.Context, db DB, fn func(DB) error) error {
	switch db := db.(type) {
	case *sql.DB:
		return mysqllock.RunTx(ctx, db, mysqllock.TxOptions{}, func(tx *sql.Tx) error { return fn(tx) })
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

// isInTx tells whether a connection is in a transaction: outside of one a savepoint is gone at once.
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

// became are the values expected of a row with those in their place that were set.
func became(p *driver.Plan, s *driver.Stmt, expected driver.Raw, set map[string]any) []any {
	values := make([]any, len(p.Token))
	copy(values, expected.Values)
	for i, c := range p.Token {
		for j := range s.Columns {
			if s.Columns[j].Name == c.Name {
				values[i] = set[s.Names[j]]
			}
		}
	}
	return values
}
