package pginventory

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// TestABrieflyLockedSKUIsWaitedFor: a transaction has got the SKU that it waited for, and finds
// another one locked for a moment. It waits for that one, too, if it lingers. Without that, it
// passes over it.
func TestABrieflyLockedSKUIsWaitedFor(t *testing.T) {
	t.Parallel()
	const tries = 20 // a busy machine may keep the row locked for longer than the wait
	db, ctx := testdb.MigratedPostgres(t), t.Context()
	_, err := db.Exec(ctx, "INSERT INTO dblock_stock (sku, bucket, available) VALUES ('k', 0, 9), ('o', 0, 9)")
	require.NoError(t, err)
	d, err := open(ctx, db, "", nil)
	require.NoError(t, err)
	got := func(lingers bool) (both bool) {
		other, err := db.Begin(ctx)
		require.NoError(t, err)
		_, err = other.Exec(ctx, "SELECT FROM dblock_stock WHERE sku = 'o' FOR UPDATE")
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			ask := driver.ReadRequest{SKUs: []string{"k", "o"}, WaitFor: "k", Lingers: lingers, Units: map[string]int64{"k": 1, "o": 1}}
			done <- d.Transact(ctx, ask, func(b driver.Books) driver.Plan {
				both = len(b.Stock["o"]) == 1 && !b.Skipped("o")
				return driver.Plan{}
			})
		}()
		for free := 1; lingers && free > 0 && len(done) == 0; { // until it has the other SKU
			require.NoError(t, db.QueryRow(ctx, "SELECT count(*) FROM (SELECT FROM dblock_stock WHERE sku = 'k' FOR UPDATE SKIP LOCKED) k").Scan(&free))
		}
		if lingers {
			require.NoError(t, other.Commit(ctx))
		}
		require.NoError(t, <-done)
		_ = other.Rollback(ctx)
		return both
	}
	assert.False(t, got(false))
	for range tries {
		if got(true) {
			return
		}
	}
	t.Errorf("passed over an SKU that was locked for a moment, %d times", tries)
}

// TestLingeringIsBoundedInAll: others lock many SKUs, one after the other for a moment each. A
// transaction that lingers has another SKU locked no longer than if they had locked one.
func TestLingeringIsBoundedInAll(t *testing.T) {
	t.Parallel()
	const n, each, most, tries = 99, 15 * time.Millisecond, 700 * time.Millisecond, 20 // a busy machine may be late
	db, ctx := testdb.MigratedPostgres(t), t.Context()
	_, err := db.Exec(ctx, "INSERT INTO dblock_stock (sku, bucket, available) VALUES ('k', 0, 9)")
	require.NoError(t, err)
	d, err := open(ctx, db, "", nil)
	require.NoError(t, err)
	ask := driver.ReadRequest{SKUs: []string{"k"}, WaitFor: "k", Lingers: true, Units: map[string]int64{"k": 1}}
	others, err := db.Acquire(ctx)
	require.NoError(t, err)
	defer others.Release()
	exec := func(query string, args ...any) {
		_, err := others.Exec(ctx, query, args...)
		require.NoError(t, err)
	}
	for i := range n {
		sku := fmt.Sprintf("o%02d", i+1)
		_, err := db.Exec(ctx, "INSERT INTO dblock_stock (sku, bucket, available) VALUES ($1, 0, 9)", sku)
		require.NoError(t, err)
		ask.SKUs, ask.Units[sku] = append(ask.SKUs, sku), 1
	}
	fastest := time.Hour
	for range tries {
		exec("BEGIN")
		for i := n; i > 0; i-- { // those that are waited for last are locked first
			exec(fmt.Sprintf("SAVEPOINT o%02d", i))
			exec("SELECT FROM dblock_stock WHERE sku = $1 FOR UPDATE", fmt.Sprintf("o%02d", i))
		}
		took := make(chan time.Duration, 1)
		go func() {
			began := time.Now()
			_ = d.Transact(ctx, ask, func(driver.Books) driver.Plan { return driver.Plan{} })
			took <- time.Since(began)
		}()
		for i := range n {
			time.Sleep(each)
			exec(fmt.Sprintf("ROLLBACK TO SAVEPOINT o%02d", i+1))
		}
		exec("ROLLBACK")
		if fastest = min(fastest, <-took); fastest < most {
			return
		}
	}
	t.Errorf("it lingered for %v at least, want less than %v", fastest, most)
}
