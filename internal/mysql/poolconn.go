package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"
)

// ExecContext is that of the pool. If ctx ends during the statement, the connection counts as in
// use for as long as the server may still wait for a lock.
func (p Pool) ExecContext(ctx context.Context, query string, args ...any) (result sql.Result, err error) {
	conn, err := p.send(ctx, func(conn *sql.Conn) error {
		result, err = conn.ExecContext(ctx, query, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	_ = conn.Close()
	return result, nil
}

// QueryContext is ExecContext for a query.
func (p Pool) QueryContext(ctx context.Context, query string, args ...any) (rows *sql.Rows, err error) {
	conn, err := p.send(ctx, func(conn *sql.Conn) error {
		rows, err = conn.QueryContext(ctx, query, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() { _ = conn.Close() }() // which waits until the rows are closed
	return rows, nil
}

// QueryRowContext is ExecContext for a query of one row.
func (p Pool) QueryRowContext(ctx context.Context, query string, args ...any) (row *sql.Row) {
	conn, err := p.send(ctx, func(conn *sql.Conn) error {
		row = conn.QueryRowContext(ctx, query, args...)
		return row.Err()
	})
	switch {
	case err == nil:
		go func() { _ = conn.Close() }()
	case row == nil: // there was no connection
		return p.DB.QueryRowContext(ctx, query, args...)
	}
	return row
}

// send runs a statement on a connection of the pool, which may have dead ones. After an error it
// gives the connection back.
func (p Pool) send(ctx context.Context, statement func(*sql.Conn) error) (*sql.Conn, error) {
	for n := 1; ; n++ {
		conn, err := p.Conn(ctx)
		if err != nil {
			return nil, err
		}
		if err = statement(conn); err == nil {
			return conn, nil
		}
		p.Put(ctx, conn)
		if n == Attempts || !errors.Is(err, driver.ErrBadConn) {
			return nil, err
		}
	}
}

// Put gives a connection back to its pool, which drops a broken one. If ctx ended during a
// statement, the connection counts as in use for as long as the server may still wait for a lock.
func (p Pool) Put(ctx context.Context, conn *sql.Conn) {
	if IsAbandoned(ctx, conn) {
		p.linger(ctx, conn)
		return
	}
	_ = conn.Close()
}

func (p Pool) linger(ctx context.Context, conn *sql.Conn) {
	p.lingering.Add(1)
	time.AfterFunc(serverWait(ctx), func() {
		_ = conn.Close()
		p.lingering.Add(-1)
	})
}
