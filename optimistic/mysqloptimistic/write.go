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
	"github.com/dblock-go/dblock/optimistic/internal/engine"
)

// Write knows the new version before it writes: the server does not return it, and LAST_INSERT_ID() is
// that of a trigger as soon as one inserts a row.
func (r room) Write(ctx context.Context, db DB, p *engine.Plan, w engine.Write) (int64, engine.Raw, error) {
	if err := checkPool(ctx, db); err != nil {
		return 0, engine.Raw{}, err
	}
	if err := fits(p, w.Key, w.Set); err != nil {
		return 0, engine.Raw{}, err
	}
	blind := w.Stmt.Op == engine.UpdateAny
	if blind && (p.Kind == engine.Int || p.Kind == engine.Timestamp) {
		return writeAny(ctx, db, p, w)
	}
	if p.Kind == engine.Timestamp && (w.Stmt.Op == engine.Update || w.Stmt.Op == engine.Insert) {
		now, err := clockOf(ctx, db)
		if err != nil {
			return 0, engine.Raw{}, err
		}
		w.Next = later(now, w.Expected)
	}
	if w.Stmt.Op == engine.Insert && !keeps(p.KeyColumn, w.Key) {
		return insertKept(ctx, db, p, w)
	}
	rows, last, err := execute(ctx, db, p, w)
	if w.Stmt.Op == engine.Insert && mysql.Classify(err) == sqlerr.Duplicate { // the index is in the text alone
		return 0, engine.Raw{}, &engine.TakenError{Err: err}
	}
	if err != nil {
		return 0, engine.Raw{}, err
	}
	if p.Kind == engine.Columns && rows == 0 && (blind || w.Stmt.Op == engine.Update) {
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
func insertKept(ctx context.Context, db DB, p *engine.Plan, w engine.Write) (rows int64, next engine.Raw, err error) {
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
		err = &engine.TakenError{Err: err}
	}
	return rows, nextOf(p, w), err
}

// execute runs the statement of w, and returns the two numbers that the server answers with.
func execute(ctx context.Context, db DB, p *engine.Plan, w engine.Write) (rows, last int64, err error) {
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
func argsOf(p *engine.Plan, w engine.Write) []any {
	args := make([]any, 0, 3+len(p.Token)+len(w.Stmt.Names))
	op := w.Stmt.Op
	if op == engine.Insert {
		args = append(args, w.Key)
	}
	for _, name := range w.Stmt.Names {
		args = append(args, w.Set[name])
	}
	if op != engine.Delete && op != engine.DeleteAny {
		switch p.Kind {
		case engine.UUID:
			args = append(args, uuid(p.Token[0], w.Next.U))
		case engine.Timestamp:
			args = append(args, instant(w.Next.N))
		}
	}
	if op != engine.Insert {
		args = append(args, w.Key)
	}
	if op == engine.Update || op == engine.Delete {
		args = expected(args, p, w.Expected)
	}
	return args
}

// nextOf is the version that w gives a row.
func nextOf(p *engine.Plan, w engine.Write) engine.Raw {
	switch {
	case p.Kind == engine.Int && w.Stmt.Op == engine.Insert:
		return engine.Raw{N: p.First}
	case p.Kind == engine.Int:
		return engine.Raw{N: w.Expected.N + 1}
	case p.Kind == engine.Columns:
		return engine.Raw{Values: became(p, w.Stmt, w.Expected, w.Set)}
	}
	return w.Next
}

// later is the time of a clock, or the one after a version, whichever is later.
func later(now int64, version engine.Raw) engine.Raw { return engine.Raw{N: max(now, version.N+1)} }

// clockOf reads the server's clock, in microseconds since 1970.
func clockOf(ctx context.Context, db DB) (now int64, err error) {
	err = db.QueryRowContext(ctx, "SELECT "+clock+" LIMIT 1").Scan(&now)
	return now, sqlerr.Unwritten(err)
}

// writeAny reads the version of a row and writes the row at that version. If another write came in
// between, it does so again, with the row locked.
func writeAny(ctx context.Context, db DB, p *engine.Plan, w engine.Write) (rows int64, next engine.Raw, err error) {
	changed := true
	try := func(db DB) error {
		rows, changed = 0, false
		version, now, ok, err := lockVersion(ctx, db, p, w.Key)
		if err != nil || !ok {
			return sqlerr.Unwritten(err)
		}
		w.Expected, w.Next = version, later(now, version)
		w.Stmt = &engine.Stmt{Op: engine.Update, Text: w.Stmt.Text, Columns: w.Stmt.Columns, Names: w.Stmt.Names}
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
func lockVersion(ctx context.Context, db DB, p *engine.Plan, key any) (r engine.Raw, now int64, ok bool, err error) {
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
	if ok = r.N < engine.LastMoment; p.Kind == engine.Int { // some modes cut what is beyond the last version
		ok = r.N >= p.First && uint64(r.N) < p.Token[0].Max
	}
	return r, now, ok && !void, rows.Err()
}

// unchanged tells how many rows a statement has found that has changed none: 1 if the row has the values
// expected, and those that are to be set as well.
func unchanged(ctx context.Context, db DB, p *engine.Plan, w engine.Write) (rows int64, err error) {
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
func isAt(ctx context.Context, db DB, p *engine.Plan, w engine.Write, lock string) (bool, error) {
	text, args := fmt.Sprintf("SELECT 1 FROM %s WHERE %s = ?", p.From, quoted(p.Key)), []any{w.Key}
	if w.Stmt.Op == engine.Update {
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
func became(p *engine.Plan, s *engine.Stmt, expected engine.Raw, set map[string]any) []any {
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
