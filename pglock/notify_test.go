package pglock_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// TestNotificationsNameNoKey: every role of a database can listen. What it receives of a key is a
// hash.
func TestNotificationsNameNoKey(t *testing.T) {
	t.Parallel()
	pool := testdb.MigratedPostgres(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, fair := range []bool{false, true} {
		key := fmt.Sprint("customer-4711/", i)
		var locks [2]*pglock.LeaseLocker
		for i := range locks {
			l, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{Fair: fair})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close(context.WithoutCancel(ctx)) }()
			locks[i] = l
		}
		spy, err := pool.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer spy.Release()
		if _, err := spy.Exec(ctx, "LISTEN dblock_released"); err != nil {
			t.Fatal(err)
		}
		held, err := locks[0].Acquire(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			lock, err := locks[1].Acquire(ctx, key)
			if err == nil {
				err = lock.Release(ctx)
			}
			got <- err
		}()
		for waiting := false; !waiting; {
			const query = "SELECT EXISTS (SELECT 1 FROM dblock_lease_waiter WHERE lease_key = $1) OR EXISTS (SELECT 1 FROM dblock_ticket WHERE lease_key = $1)"
			if err := pool.QueryRow(ctx, query, key).Scan(&waiting); err != nil {
				t.Fatal(err)
			}
		}
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		n, err := spy.Conn().WaitForNotification(ctx)
		if err != nil {
			t.Fatal(err)
		}
		hash := fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
		if handle := len(n.Payload) == 33 && n.Payload[0] == 1; handle != fair || !fair && n.Payload != hash {
			t.Errorf("fair %t: another role hears %q", fair, n.Payload)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
		if _, err := spy.Exec(ctx, "UNLISTEN *"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheHostHearsNothing: the host's pool has a function for notifications. It is not called, and
// a release wakes the next waiter.
func TestTheHostHearsNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg := testdb.MigratedPostgres(t).Config()
	cfg.ConnConfig.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { t.Errorf("the host received %+v", n) }
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for range 2 {
		l, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close(context.WithoutCancel(ctx)) }()
		lock, err := l.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(500*time.Millisecond, func() { _ = lock.Release(ctx) })
	}
}
