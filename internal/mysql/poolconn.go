package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"time"
)

// ExecContext is that of the pool. If ctx ends during the statement, and the server may be waiting
// for a lock, the connection counts as in use for as long: see left.
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
		began := time.Now()
		if err = statement(conn); err == nil {
			p.left.endedWell()
			return conn, nil
		}
		p.Put(ctx, conn, time.Since(began))
		if n == Attempts || !errors.Is(err, driver.ErrBadConn) {
			return nil, err
		}
	}
}

// Put gives a connection back to its pool after a statement that took so long. The pool drops a
// broken one.
func (p Pool) Put(ctx context.Context, conn *sql.Conn, took time.Duration) {
	if IsAbandoned(ctx, conn) {
		p.linger(ctx, conn, took)
		return
	}
	p.left.endedWell()
	_ = conn.Close()
}

// left is the connections whose callers have left during a statement. The server goes on with the
// statement, and may wait for a lock. Behind a locked table, callers that give up soon would leave
// any number of such sessions. So a connection counts as in use for as long as the server may wait,
// for a while after a caller has left during a statement that was under way for long. Else the
// server waits for nothing, and callers that give up soon must not keep the pool from others. That
// is known as soon as some statements have ended well.
type left struct {
	conns atomic.Int64 // that count as in use
	slow  atomic.Int64 // until when the server may wait, in Unix time
	well  atomic.Int64 // statements that have ended well since then
}

const (
	slowStatement = 50 * time.Millisecond // for how long a statement is under way that may wait
	slowFor       = 3                     // times as long as the server may wait
	enoughWell    = 20                    // statements
)

// endedWell notes that a statement has ended while its caller was there.
func (l *left) endedWell() {
	if l.slow.Load() != 0 && l.well.Add(1) >= enoughWell {
		l.slow.Store(0)
	}
}

// mayWait reports whether the server may wait for a lock, after a caller has left during a
// statement that took so long. wait is for how long it does. A statement of few says nothing of
// others.
func (l *left) mayWait(now time.Time, took, wait time.Duration, ofFew bool) bool {
	switch {
	case took < slowStatement:
	case ofFew:
		return true
	default:
		l.well.Store(0)
		l.slow.Store(now.Add(slowFor * wait).UnixNano())
	}
	return now.UnixNano() < l.slow.Load()
}

type ofFewKey struct{}

// OfFew is ctx for a statement of which few are under way at once, however many callers leave. It
// may take long though the server waits for nothing.
func OfFew(ctx context.Context) context.Context { return context.WithValue(ctx, ofFewKey{}, true) }

// linger gives back a connection whose caller has left during a statement that took so long.
func (p Pool) linger(ctx context.Context, conn *sql.Conn, took time.Duration) {
	wait := serverWait(ctx)
	if !p.left.mayWait(time.Now(), took, wait, ctx.Value(ofFewKey{}) != nil) {
		_ = conn.Close()
		return
	}
	p.left.conns.Add(1)
	time.AfterFunc(wait, func() {
		_ = conn.Close()
		p.left.conns.Add(-1)
	})
}
