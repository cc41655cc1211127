package migratelock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/migratelock"
	"github.com/dblock-go/dblock/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

type locker interface {
	SessionLock(ctx context.Context, conn *sql.Conn) error
	SessionUnlock(ctx context.Context, conn *sql.Conn) error
}

// short is a timeout for locks that are not expected to come.
const short = 50 * time.Millisecond

type bench struct {
	*testing.T
	db     *sql.DB
	kind   devdb.Kind
	schema string
}

// each runs a test on every engine under test.
func each(t *testing.T, fn func(b bench)) {
	t.Helper()
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := bench{T: t, kind: kind, schema: t.Name()}
			if kind == devdb.Postgres {
				b.db = stdlib.OpenDBFromPool(testdb.Postgres(t))
				t.Cleanup(func() { _ = b.db.Close() })
			} else {
				b.db = testdb.MySQLOn(t, kind)
			}
			fn(b)
		})
	}
}

func (b bench) locker(schema string, timeout time.Duration) locker {
	if b.kind == devdb.Postgres {
		return &migratelock.Postgres{Schema: schema, Timeout: timeout, Close: func(c any) {
			_ = c.(*stdlib.Conn).Conn().Close(context.Background())
		}}
	}
	return &migratelock.MySQL{Database: schema, Timeout: timeout}
}

func (b bench) conn() *sql.Conn {
	b.Helper()
	conn, err := b.db.Conn(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (b bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b bench) exec(conn *sql.Conn, postgres, mysql string) {
	b.Helper()
	query := mysql
	if b.kind == devdb.Postgres {
		query = postgres
	}
	_, err := conn.ExecContext(b.Context(), query)
	b.must(err)
}

func TestOneSessionAtATime(t *testing.T) {
	each(t, func(b bench) {
		first, second := b.conn(), b.conn()
		// Locks that store local times let both in here.
		b.exec(first, "SET timezone = 'UTC'", "SET time_zone = '+00:00'")
		b.exec(second, "SET timezone = 'Asia/Tokyo'", "SET time_zone = '+09:00'")
		l := b.locker(b.schema, 0)
		b.must(l.SessionLock(b.Context(), first))
		if err := b.locker(b.schema, short).SessionLock(b.Context(), second); !errors.Is(err, dblock.ErrBusy) {
			b.Errorf("the second session got %v, want ErrBusy", err)
		}
		// The control: it is the name that excludes.
		other := b.locker(b.schema+"2", 0)
		b.must(other.SessionLock(b.Context(), second))
		b.must(other.SessionUnlock(b.Context(), second))

		b.must(l.SessionUnlock(b.Context(), first))
		b.must(l.SessionLock(b.Context(), second))
		b.must(l.SessionUnlock(b.Context(), second))
	})
}

func TestWaiterGetsIt(t *testing.T) {
	each(t, func(b bench) {
		first, second := b.conn(), b.conn()
		l := b.locker(b.schema, 0)
		b.must(l.SessionLock(b.Context(), first))
		got := make(chan error, 1)
		go func() { got <- l.SessionLock(b.Context(), second) }()
		select {
		case err := <-got:
			b.Fatalf("a waiter came back while the lock was held: %v", err)
		case <-time.After(short):
		}
		b.must(l.SessionUnlock(b.Context(), first))
		b.must(<-got)
		b.must(l.SessionUnlock(b.Context(), second))
	})
}

func TestCancelledWaiterHoldsNothing(t *testing.T) {
	each(t, func(b bench) {
		first, second := b.conn(), b.conn()
		l := b.locker(b.schema, 0)
		b.must(l.SessionLock(b.Context(), first))
		ctx, cancel := context.WithCancel(b.Context())
		got := make(chan error, 1)
		go func() { got <- l.SessionLock(ctx, second) }()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			b.Errorf("the waiter got %v, want context.Canceled", err)
		}
		b.must(l.SessionUnlock(b.Context(), first))
		b.must(l.SessionLock(b.Context(), first))
		b.must(l.SessionUnlock(b.Context(), first))
	})
}

func TestUnlockWithDeadContext(t *testing.T) {
	each(t, func(b bench) {
		first, second := b.conn(), b.conn()
		l := b.locker(b.schema, 0)
		b.must(l.SessionLock(b.Context(), first))
		dead, cancel := context.WithCancel(b.Context())
		cancel()
		b.must(l.SessionUnlock(dead, first))
		b.must(l.SessionLock(b.Context(), second))
		b.must(l.SessionUnlock(b.Context(), second))
	})
}

// A session that may hold a lock must not come back from the pool, also from a pool of the host's.
func TestUnconfirmedUnlockEndsTheSession(t *testing.T) {
	each(t, func(b bench) {
		b.db.SetMaxOpenConns(2)
		first, second := b.conn(), b.conn()
		l := b.locker(b.schema, 0)
		b.must(l.SessionLock(b.Context(), first))
		// To unlock another name fails, and leaves this one held: as if the answer had been lost.
		if err := b.locker(b.schema+"2", 0).SessionUnlock(b.Context(), first); err == nil {
			b.Fatal("to unlock what was not held gave no error")
		}
		if err := first.PingContext(b.Context()); !errors.Is(err, sql.ErrConnDone) {
			b.Errorf("the connection is still in use: %v", err)
		}
		b.must(l.SessionLock(b.Context(), second))
		b.must(l.SessionUnlock(b.Context(), second))
	})
}

// TestUnlockBesideAnOpenTransaction: a transaction of the host that is still open keeps the
// connection in use, and its statement has failed. SessionUnlock returns, and the lock is free.
func TestUnlockBesideAnOpenTransaction(t *testing.T) {
	each(t, func(b bench) {
		first, second := b.conn(), b.conn()
		l := b.locker(b.schema, time.Minute)
		b.must(l.SessionLock(b.Context(), first))
		tx, err := first.BeginTx(context.WithoutCancel(b.Context()), nil)
		b.must(err)
		defer func() { _ = tx.Rollback() }()
		if b.kind == devdb.Postgres {
			_, err = tx.ExecContext(b.Context(), "SELECT 1 / 0")
		} else {
			var id int64
			b.must(tx.QueryRowContext(b.Context(), "SELECT CONNECTION_ID()").Scan(&id))
			_, err = b.db.ExecContext(b.Context(), fmt.Sprint("KILL ", id))
			b.must(err)
			_, err = tx.ExecContext(b.Context(), "DO 1")
		}
		if err == nil {
			b.Fatal("the statement has not failed")
		}
		unlocked := make(chan error, 1)
		go func() { unlocked <- l.SessionUnlock(b.Context(), first) }()
		select {
		case err := <-unlocked:
			if err == nil {
				b.Error("an unlock that was not confirmed gave no error")
			}
		case <-time.After(time.Minute):
			b.Fatal("SessionUnlock does not return")
		}
		b.must(l.SessionLock(b.Context(), second))
		b.must(l.SessionUnlock(b.Context(), second))
	})
}

// The control to TestUnconfirmedUnlockEndsTheSession: a connection that only goes back to its pool
// keeps the lock.
func TestPooledSessionKeepsTheLock(t *testing.T) {
	each(t, func(b bench) {
		first, second := b.conn(), b.conn()
		b.must(b.locker(b.schema, 0).SessionLock(b.Context(), first))
		b.must(first.Close())
		if err := b.locker(b.schema, short).SessionLock(b.Context(), second); !errors.Is(err, dblock.ErrBusy) {
			b.Errorf("got %v, want ErrBusy", err)
		}
	})
}

func TestKilledSessionFreesTheLock(t *testing.T) {
	each(t, func(b bench) {
		first, second := b.conn(), b.conn()
		l := b.locker(b.schema, 0)
		b.must(l.SessionLock(b.Context(), first))
		if b.kind == devdb.Postgres {
			var pid int
			b.must(first.QueryRowContext(b.Context(), "SELECT pg_backend_pid()").Scan(&pid))
			_, err := second.ExecContext(b.Context(), "SELECT pg_terminate_backend($1)", pid)
			b.must(err)
		} else {
			var id string
			b.must(first.QueryRowContext(b.Context(), "SELECT CONNECTION_ID()").Scan(&id))
			_, err := second.ExecContext(b.Context(), "KILL "+id)
			b.must(err)
		}
		b.must(l.SessionLock(b.Context(), second))
		if err := l.SessionUnlock(b.Context(), first); err == nil {
			b.Error("a killed session confirmed its unlock")
		}
		b.must(l.SessionUnlock(b.Context(), second))
	})
}

// TestASharedSessionIsRefused: a server grants a lock once more to the session that holds it, which
// a pooler may give to two clients.
func TestASharedSessionIsRefused(t *testing.T) {
	each(t, func(b bench) {
		conn := b.conn()
		if err := b.locker(b.schema, 0).SessionLock(b.Context(), conn); err != nil {
			b.Fatal(err)
		}
		if err := b.locker(b.schema, 0).SessionLock(b.Context(), conn); !errors.Is(err, dblock.ErrUnsupported) {
			b.Errorf("the same session again: %v", err)
		}
		// That connection was closed, with its lock.
		if err := b.locker(b.schema, 10*time.Second).SessionLock(b.Context(), b.conn()); err != nil {
			b.Error(err)
		}
	})
}

// TestPoolersShareNoLock: of two clients of a pooler in transaction mode, whose driver does not
// show it, one gets the lock at most.
func TestPoolersShareNoLock(t *testing.T) {
	t.Parallel()
	if !slices.Contains(testdb.Engines(), devdb.Postgres) {
		return
	}
	db, err := sql.Open("pgx", testdb.Pooled(t, testdb.PostgresURL(t))+"&default_query_exec_mode=simple_protocol")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	holders := 0
	for range 4 {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		l := migratelock.Postgres{Schema: t.Name(), Timeout: short}
		if l.SessionLock(t.Context(), conn) == nil {
			holders++
		}
	}
	if holders > 1 {
		t.Errorf("%d clients hold the lock at once", holders)
	}
}
