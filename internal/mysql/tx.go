package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// Tx is a transaction of one of a host's connections. It never waits long for a network that is
// silent. COMMIT and ROLLBACK of database/sql have no bound, and database/sql sends a ROLLBACK
// when the context of a transaction ends.
type Tx struct {
	*sql.Tx

	conn   *sql.Conn
	keep   func() bool
	end    context.CancelFunc
	closed chan struct{} // of the context's end: the connection is closed
	kept   bool
	ended  bool        // the server has confirmed its end
	last   driver.Rows // of the statement before its end
	unlast func()      // ends that statement's context
}

// endBound is how long a transaction waits for the answer to its end.
const endBound = time.Second

// mark is a savepoint. It is there for as long as the transaction is the one that was begun.
const mark = "dblock_tx"

// Begin begins a transaction on a connection of a pool, with modes that are a statement. It sends
// nothing twice that may have been written: a connection that was found dead is replaced. If ctx
// ends before Keep, the connection is closed, and the server rolls back. first, unless it is nil,
// is called with the connection before the transaction begins, which it does not after an error of
// first.
func Begin(ctx context.Context, db *sql.DB, modes string, first func(*sql.Conn) error) (*Tx, error) {
	for n := 1; ; n++ {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		var t *Tx
		if first != nil {
			err = first(conn)
		}
		if err != nil {
			_ = conn.Close()
		} else {
			t, err = BeginOn(ctx, conn, modes)
		}
		if err == nil || n == Attempts || !errors.Is(err, driver.ErrBadConn) {
			return t, err
		}
	}
}

// BeginOn is Begin on a connection, which it returns after an error.
func BeginOn(ctx context.Context, conn *sql.Conn, modes string) (*Tx, error) {
	t := &Tx{conn: conn, closed: make(chan struct{})}
	err := t.begin(ctx, modes)
	switch {
	case err != nil && t.Tx == nil:
		Discard(conn) // the modes may be set, and are for this transaction alone
		_ = conn.Close()
	case err != nil:
		t.Return(func() { Discard(conn) })
	}
	return t, err
}

func (t *Tx) begin(ctx context.Context, modes string) error {
	if _, err := t.conn.ExecContext(ctx, modes); err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	t.end = end
	var begun atomic.Bool
	t.keep = context.AfterFunc(ctx, func() {
		if begun.Load() { // until then the driver closes it
			sever(t.conn)
		}
		end()
		close(t.closed)
	})
	tx, err := t.conn.BeginTx(life, nil)
	if err != nil {
		t.keep()
		end()
		return err
	}
	begun.Store(true)
	t.Tx = tx
	_, err = t.ExecContext(ctx, "SAVEPOINT "+mark)
	return err
}

// Check fails if the transaction is not the one that was begun, or is over. It can be called once.
func (t *Tx) Check(ctx context.Context) error {
	_, err := t.ExecContext(ctx, "RELEASE SAVEPOINT "+mark)
	return err
}

// Keep makes the transaction independent of the context of Begin. It reports false if that has
// ended.
func (t *Tx) Keep() bool {
	t.kept = t.kept || t.keep()
	return t.kept
}

// Commit commits. A second after the end of ctx it closes the connection.
func (t *Tx) Commit(ctx context.Context) error {
	if err := t.before(ctx, "DO 0"); err != nil {
		return err
	}
	return t.commit()
}

// CheckAndCommit is Check and Commit with one round trip less. It reports which of them failed.
func (t *Tx) CheckAndCommit(ctx context.Context) (checked bool, err error) {
	if err := t.before(ctx, "RELEASE SAVEPOINT "+mark); err != nil {
		return false, err
	}
	return true, t.commit()
}

func (t *Tx) commit() error {
	err := t.Tx.Commit()
	t.ended = err == nil
	return err
}

// before sends the last statement before COMMIT or ROLLBACK, and leaves its result open. The driver
// closes the connection if the context of an open result ends. So the end, which has no context, is
// bounded, too.
func (t *Tx) before(ctx context.Context, statement string) error {
	within, end := context.WithCancel(context.WithoutCancel(ctx))
	late := context.AfterFunc(ctx, func() { time.AfterFunc(endBound, end) })
	t.unlast = func() { late(); end() }
	err := driver.ErrSkip
	raw := t.conn.Raw(func(c any) error {
		if q, can := c.(driver.QueryerContext); can {
			t.last, err = q.QueryContext(within, statement, nil)
		}
		return nil // after an ErrBadConn, Raw would wait for the end of the transaction
	})
	switch {
	case raw != nil:
		return raw
	case errors.Is(err, driver.ErrSkip):
		_, err = t.ExecContext(within, statement)
	}
	return err
}

// Return rolls back, unless the transaction is committed, calls after, and gives the connection to
// the pool. If the server does not confirm the end, the connection is closed.
func (t *Tx) Return(after func()) {
	own := t.Keep()
	switch {
	case !own:
		<-t.closed
	case !t.ended && t.unlast == nil:
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // which leaves endBound
		t.ended = t.before(ctx, "ROLLBACK") == nil
	}
	if own && !t.ended {
		sever(t.conn)
	}
	err := t.Rollback()
	t.end()
	if !own || !t.ended || err != nil && !errors.Is(err, sql.ErrTxDone) {
		Discard(t.conn)
	}
	t.closeRows()
	after()
	_ = t.conn.Close()
}

// closeRows closes the result that before has left open.
func (t *Tx) closeRows() {
	if t.last != nil {
		_ = t.conn.Raw(func(any) error {
			_ = t.last.Close()
			return nil
		})
	}
	if t.unlast != nil {
		t.unlast()
	}
}

// sever closes the driver's connection without waiting for the server. The pool learns of it when
// it gets the connection back.
func sever(conn *sql.Conn) {
	_ = conn.Raw(func(c any) error {
		if c, ok := c.(io.Closer); ok {
			_ = c.Close()
		}
		return nil
	})
}
