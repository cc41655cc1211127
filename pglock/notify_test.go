package pglock_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

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
