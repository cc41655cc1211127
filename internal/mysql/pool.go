package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strconv"
	"time"

	"github.com/dblock-go/dblock/internal/sqlconn"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Pool is a host's.
type Pool struct {
	*sql.DB
	MariaDB bool // the server is one

	left *left
}

// NewPool returns a pool of a MySQL server, until MariaDB is set.
func NewPool(db *sql.DB) Pool { return Pool{DB: db, left: new(left)} }

// Exhausted reports that all connections of the pool serve callers. Those whose callers have left
// don't count.
func (p Pool) Exhausted() bool {
	s := p.Stats()
	return s.MaxOpenConnections > 0 && s.InUse-int(p.left.conns.Load()) >= s.MaxOpenConnections
}

// Attempts is how often a statement is sent whose connection was dead before.
const Attempts = 4

// ReadCommitted has the next transaction be of READ COMMITTED, whatever the session's default.
const ReadCommitted = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"

const (
	start = "START TRANSACTION READ WRITE"

	keepBounds = "SET @dblock_wait = @@SESSION.innodb_lock_wait_timeout, @dblock_table_wait = @@SESSION.lock_wait_timeout, " +
		"SESSION lock_wait_timeout = 1, SESSION innodb_lock_wait_timeout = "
	keepBound = keepBounds + "1"
	hostBound = "SET SESSION innodb_lock_wait_timeout = @dblock_wait, SESSION lock_wait_timeout = @dblock_table_wait"
)

// LockWait is for how long a statement waits for a lock at most.
const LockWait = time.Second

// serverWait is for how long a connection whose caller has left counts as in use, as it is on the
// server: MySQL looks once a second for waits that are over.
func serverWait(ctx context.Context) time.Duration {
	return time.Duration(lockWaitOf(ctx))*time.Second + LockWait
}

// In runs fn in a READ COMMITTED transaction, and commits it if fn says so. After an error of the
// commit itself it is not known whether it took place.
//
// It is not a *sql.Tx, because Commit and Rollback of one take no context: if the network goes
// silent they hang for minutes.
func (p Pool) In(ctx context.Context, fn func(*sql.Conn) (commit bool, err error)) error {
	begin := []string{ReadCommitted, start}
	if !p.MariaDB {
		begin[0] = keepBounds + strconv.Itoa(lockWaitOf(ctx)) + ", @@transaction_isolation = 'READ-COMMITTED'"
	}
	conn, err := p.connect(ctx, begin...)
	if err != nil {
		return sqlerr.Unwritten(err)
	}
	ended, began := false, time.Now()
	defer func() { p.giveBack(ctx, conn, ended, time.Since(began)) }()
	commit, err := fn(conn)
	if err != nil || !commit {
		ended = !IsAbandoned(ctx, conn) && execLast(ctx, conn, "ROLLBACK")
		return sqlerr.Unwritten(err)
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	ended = err == nil
	return WithHint(err)
}

// Bind returns a connection on which statements outside of transactions are bounded, too, once they
// run on Briefly.
func (p Pool) Bind(ctx context.Context) (*sql.Conn, error) {
	if p.MariaDB {
		return p.connect(ctx)
	}
	return p.connect(ctx, keepBound)
}

// BindFor bounds for how long statements of the host's wait for a lock on a connection of In, until
// unbind: for a second, or not at all if they are to be brief and the server can do that. On MySQL
// the session is bounded already.
func (p Pool) BindFor(ctx context.Context, conn *sql.Conn, brief bool) (unbind func(), err error) {
	if !p.MariaDB {
		return func() {}, nil
	}
	bound := keepBound
	if brief {
		bound = keepBound + ", SESSION innodb_lock_wait_timeout = 0"
	}
	if _, err := conn.ExecContext(ctx, bound); err != nil {
		return nil, err
	}
	return func() { Reset(ctx, conn, hostBound) }, nil
}

// ForASecond runs fn in a transaction whose statements wait for a lock for a second.
func ForASecond(ctx context.Context, tx *sql.Tx, fn func() error) error {
	return Between(ctx, tx, keepBound, hostBound, fn)
}

// resetTime is how long a statement may take that sets a session back.
const resetTime = 10 * time.Second

// Between runs fn after a statement that sets values of the transaction's session, and before one
// that sets them back. The connection goes back to a pool: the session is set back even if ctx has
// ended meanwhile.
func Between(ctx context.Context, tx *sql.Tx, set, back string, fn func() error) error {
	if _, err := tx.ExecContext(ctx, set); err != nil {
		return err
	}
	err := fn()
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetTime)
	defer cancel()
	_, failed := tx.ExecContext(within, back)
	return errors.Join(err, failed)
}

// Return gives a connection back to the pool. One that is not clean is closed: its transaction may
// be open. If ctx ended during a statement, the server may still wait for a lock; the connection
// counts as in use for as long.
func (p Pool) Return(ctx context.Context, conn *sql.Conn, clean bool) {
	p.giveBack(ctx, conn, clean, slowStatement)
}

// giveBack is Return after a transaction that took so long.
func (p Pool) giveBack(ctx context.Context, conn *sql.Conn, clean bool, took time.Duration) {
	switch {
	case !clean && IsAbandoned(ctx, conn):
		p.linger(ctx, conn, took)
		return
	case !clean:
		Discard(conn)
	default:
		p.left.endedWell()
	}
	if clean && !p.MariaDB {
		// A goroutine of its own would save the round trip, but the next transaction would open
		// another connection meanwhile.
		Reset(ctx, conn, hostBound)
	}
	_ = conn.Close()
}

// connect returns a connection of the pool, which may have dead ones, after some statements.
func (p Pool) connect(ctx context.Context, statements ...string) (*sql.Conn, error) {
	for n := 1; ; n++ {
		conn, err := p.Conn(ctx)
		if err != nil {
			return nil, err
		}
		for _, s := range statements {
			if _, err = conn.ExecContext(ctx, s); err != nil {
				break
			}
		}
		if err == nil {
			return conn, nil
		}
		Discard(conn)
		_ = conn.Close()
		if n == Attempts || !errors.Is(err, driver.ErrBadConn) {
			return nil, WithHint(err)
		}
	}
}

// Reset runs the statement that gives a session what the host has set, within a second even if
// ctx has ended. If it fails, the connection is closed.
func Reset(ctx context.Context, conn *sql.Conn, statement string) {
	if !execLast(ctx, conn, statement) {
		Discard(conn)
	}
}

// Discard closes a connection whose transaction may still be open: the pool must not get it.
func Discard(conn *sql.Conn) { sqlconn.Discard(conn, nil) }

// IsValid reports whether a connection can take a statement.
func IsValid(conn *sql.Conn) bool { return sqlconn.IsValid(conn) }

// execLast runs a statement within a second, even if ctx has ended. It does not begin on a
// connection with open rows: database/sql would wait until they are closed.
func execLast(ctx context.Context, conn *sql.Conn, statement string) (ok bool) {
	if !IsValid(conn) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, err := conn.ExecContext(ctx, statement)
	return err == nil
}

// IsAbandoned reports that ctx has ended during a statement: then the driver has closed the
// connection.
func IsAbandoned(ctx context.Context, conn *sql.Conn) (closed bool) {
	if ctx.Err() == nil {
		return false
	}
	_ = conn.Raw(func(c any) error {
		v, ok := c.(driver.Validator)
		closed = ok && !v.IsValid()
		return nil
	})
	return closed
}
