package pglock_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/pglock"
)

// TestSettingsTakeAnyDuration: the server counts milliseconds in 31 bits.
func TestSettingsTakeAnyDuration(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	if _, err := migrations.Up(t.Context(), pool, migrations.Options{LockTimeout: math.MaxInt64}); err != nil {
		t.Fatal(err)
	}
	l, err := pglock.NewLeaseLocker(t.Context(), pool, pglock.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.Background()) }()
	lock, err := l.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Release(context.Background()) }()
	fence, _ := lock.Fence()
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, math.MaxInt32 * time.Millisecond, math.MaxInt64} {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := (pglock.Guards{IdleTimeout: d}).Guard(t.Context(), tx, fence); err != nil {
			t.Errorf("%v: %v", d, err)
		}
		_ = tx.Rollback(context.Background())
	}
}
