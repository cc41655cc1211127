package mysqllock_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
	"github.com/dblock-go/dblock/mysqllock"
)

// TestSelectLimitOfTheHost: a host sets sql_select_limit on the connections of its pool after
// leases and sales were opened. They read all rows that there are.
func TestSelectLimitOfTheHost(t *testing.T) {
	eachServer(t, func(t *testing.T, kind devdb.Kind) {
		ctx := t.Context()
		const conns = 20
		dsn := testdb.Migrated(t, kind)
		open := func() *sql.DB {
			db, err := sql.Open("mysql", dsn)
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			db.SetMaxOpenConns(conns)
			db.SetMaxIdleConns(conns)
			return db
		}
		db, other := open(), open()
		leases, err := mysqllock.NewLeaseLocker(ctx, db, mysqllock.LeaseOptions{})
		require.NoError(t, err)
		defer func() { _ = leases.Close(ctx) }()
		fair, err := mysqllock.NewLeaseLocker(ctx, db, mysqllock.LeaseOptions{Fair: true})
		require.NoError(t, err)
		defer func() { _ = fair.Close(ctx) }()
		rival, err := mysqllock.NewLeaseLocker(ctx, other, mysqllock.LeaseOptions{})
		require.NoError(t, err)
		defer func() { _ = rival.Close(ctx) }()
		store, err := mysqlinventory.New(ctx, db, inventory.Options{})
		require.NoError(t, err)
		defer func() { _ = store.Close(ctx) }()
		testdb.LimitReads(t, db, conns)

		for name, opts := range map[string][]dblock.Option{
			"alone": nil, "shared": {dblock.WithShared()}, "permits": {dblock.WithPermits(2, 3)},
		} {
			lock, err := leases.TryAcquire(ctx, name, opts...)
			require.NoError(t, err, name)
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			fence, _ := lock.Fence()
			assert.NoError(t, leases.Guard(ctx, tx, fence), name)
			require.NoError(t, tx.Rollback())
			against := opts
			if name == "shared" {
				against = nil
			}
			_, err = rival.TryAcquire(ctx, name, against...)
			assert.ErrorIs(t, err, dblock.ErrNotAcquired, name)
			require.NoError(t, lock.Release(ctx), name)
			next, err := rival.TryAcquire(ctx, name, against...)
			require.NoError(t, err, name)
			_, err = leases.TryAcquire(ctx, name, opts...)
			assert.ErrorIs(t, err, dblock.ErrNotAcquired, name)
			require.NoError(t, next.Release(ctx))
		}
		both, err := leases.AcquireAll(ctx, []string{"a", "b"})
		require.NoError(t, err)
		_, err = rival.TryAcquire(ctx, "b")
		assert.ErrorIs(t, err, dblock.ErrNotAcquired)
		_, err = fair.TryAcquire(ctx, "a")
		assert.ErrorIs(t, err, dblock.ErrNotAcquired)
		require.NoError(t, both.Release(ctx))
		turn, err := fair.Acquire(ctx, "a")
		require.NoError(t, err)
		require.NoError(t, turn.Release(ctx))

		for _, sku := range []string{"x", "y"} {
			_, err := store.Restock(ctx, inventory.Adjustment{ID: sku, SKU: sku, Delta: 5})
			require.NoError(t, err)
		}
		cart := inventory.Cart{Key: "c", Buyer: "b", Hold: time.Hour, Lines: []inventory.Line{{SKU: "x", Qty: 2, Limit: 2}, {SKU: "y", Qty: 3}}}
		_, err = store.ReserveAll(ctx, cart)
		require.NoError(t, err)
		again, err := store.ReserveAll(ctx, cart)
		require.NoError(t, err)
		assert.True(t, again.Replayed)
		_, err = store.Reserve(ctx, inventory.Request{Key: "d", SKU: "x", Buyer: "b", Qty: 1, Limit: 2})
		assert.ErrorIs(t, err, inventory.ErrLimitExceeded)
		_, err = store.Reserve(ctx, inventory.Request{Key: "e", SKU: "y", Buyer: "b", Qty: 3})
		assert.ErrorIs(t, err, inventory.ErrSoldOut)
		_, err = store.Cancel(ctx, "c")
		require.NoError(t, err)
		books := make(map[string]int)
		rows, err := other.QueryContext(ctx, "SELECT sku, SUM(available) FROM dblock_stock GROUP BY sku")
		require.NoError(t, err)
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var sku string
			var units int
			require.NoError(t, rows.Scan(&sku, &units))
			books[sku] = units
		}
		require.NoError(t, rows.Err())
		assert.Equal(t, map[string]int{"x": 5, "y": 5}, books)
	})
}
