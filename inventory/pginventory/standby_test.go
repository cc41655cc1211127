package pginventory_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
	"github.com/dblock-go/dblock/migrations"
)

// TestFaultsNoAnswerIsAheadOfTheStandby freezes a synchronous standby. What is written then is
// committed on the primary alone, as the test sees, and no call says that it is recorded. Once the
// standby goes on, each does.
func TestFaultsNoAnswerIsAheadOfTheStandby(t *testing.T) {
	t.Parallel()
	primary := testdb.Own(t, devdb.Postgres)
	if primary == nil {
		return
	}
	standby := testdb.Replica(t, primary)
	ctx := t.Context()
	cfg, err := pgxpool.ParseConfig(primary.AdminDSN())
	require.NoError(t, err)
	cfg.MaxConns = 32
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	require.NoError(t, err)
	defer pool.Close()
	_, err = migrations.Up(ctx, pool, migrations.Options{})
	require.NoError(t, err)
	store, err := pginventory.New(ctx, pool, inventory.Options{Timeout: 5 * time.Second})
	require.NoError(t, err)
	defer func() { assert.NoError(t, store.Close(context.Background())) }()
	calls := ofStandby(t, store, pool)
	for _, key := range []string{"confirmed", "extended", "cancelled"} {
		_, err = store.Reserve(ctx, inventory.Request{Key: key, SKU: key, Buyer: "ann", Qty: 1, Hold: time.Hour})
		require.NoError(t, err)
	}

	require.NoError(t, standby.Freeze())
	unknown := func(names ...string) {
		var all sync.WaitGroup
		for _, name := range names {
			all.Go(func() { assert.ErrorIs(t, calls[name](), dblock.ErrOutcomeUnknown, name) })
		}
		all.Wait()
	}
	unknown("Reserve", "Unstocked", "ReserveAll", "Confirm", "Cancel", "Restock")
	var visible int
	seen := func() bool {
		require.NoError(t, pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM dblock_reservation WHERE state = 2)
			+ (SELECT count(*) FROM dblock_reservation WHERE state = 3)
			+ (SELECT count(*) FROM dblock_adjustment WHERE adjustment_id = 'restocked')`).Scan(&visible))
		return visible == 7
	}
	require.Eventually(t, seen, time.Minute, 10*time.Millisecond, "nothing that a call could answer is visible")
	unknown(slices.Collect(maps.Keys(calls))...)
	require.NoError(t, standby.Thaw())
	for name, call := range calls {
		assert.EventuallyWithT(t, func(c *assert.CollectT) { assert.NoError(c, call(), name) }, time.Minute, 10*time.Millisecond)
	}
}

// ofStandby are calls that write on their first run, or answer what another one has written.
func ofStandby(t *testing.T, store *inventory.Store, pool *pgxpool.Pool) map[string]func() error {
	ctx := t.Context()
	for _, sku := range []string{"order", "cart", "confirmed", "extended", "cancelled"} { // no two wait for one row
		_, err := store.Restock(ctx, inventory.Adjustment{ID: sku, SKU: sku, Delta: 10})
		require.NoError(t, err)
	}
	order := inventory.Request{Key: "order", SKU: "order", Buyer: "ann", Qty: 1}
	coupon := inventory.Request{Key: "coupon", SKU: "c", Buyer: "ann", Qty: 1, Unstocked: true}
	reserve := func(r inventory.Request) func() error {
		return func() error { _, err := store.Reserve(ctx, r); return err }
	}
	inTx := func(r inventory.Request) func() error {
		return func() error {
			within, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			tx, err := pool.Begin(within)
			if err != nil {
				return err
			}
			if got, err := pginventory.ReserveTx(within, store, tx, r); err != nil || !got.Replayed {
				t.Errorf("in a transaction: %v, %v", got, err)
			}
			if tx.Commit(within) != nil {
				return dblock.ErrOutcomeUnknown
			}
			return nil
		}
	}
	return map[string]func() error{
		"Reserve": reserve(order), "Unstocked": reserve(coupon),
		"ReserveTx": inTx(order), "Unstocked in a transaction": inTx(coupon),
		"ReserveAll": func() error {
			lines := []inventory.Line{{SKU: "cart", Qty: 1}, {SKU: "d", Qty: 1, Unstocked: true}}
			_, err := store.ReserveAll(ctx, inventory.Cart{Key: "cart", Buyer: "ann", Lines: lines})
			return err
		},
		"Lookup":  func() error { _, err := store.Lookup(ctx, "order"); return err },
		"Confirm": func() error { _, err := store.Confirm(ctx, "confirmed"); return err },
		"Cancel":  func() error { _, err := store.Cancel(ctx, "cancelled"); return err },
		"Extend":  func() error { _, err := store.Extend(ctx, "extended", time.Minute); return err },
		"Restock": func() error {
			_, err := store.Restock(ctx, inventory.Adjustment{ID: "restocked", SKU: "y", Delta: 1})
			return err
		},
	}
}
