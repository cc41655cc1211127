package pglock_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
	"github.com/dblock-go/dblock/pglock"
)

// TestClientEncoding: a key is the same one for a host whose sessions have another encoding. What
// works on the host's own sessions refuses them.
func TestClientEncoding(t *testing.T) {
	t.Parallel()
	dsn := testdb.Migrated(t, devdb.Postgres)
	pool := func(change func(*pgxpool.Config)) *pgxpool.Pool {
		config, err := pgxpool.ParseConfig(dsn)
		require.NoError(t, err)
		change(config)
		p, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(p.Close)
		return p
	}
	latin := pool(func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["client_encoding"] = "LATIN1" })
	a, err := pglock.NewLeaseLocker(t.Context(), pool(func(*pgxpool.Config) {}), pglock.LeaseOptions{})
	require.NoError(t, err)
	defer func() { _ = a.Close(t.Context()) }()
	b, err := pglock.NewLeaseLocker(t.Context(), latin, pglock.LeaseOptions{})
	require.NoError(t, err)
	defer func() { _ = b.Close(t.Context()) }()
	lock, err := a.TryAcquire(t.Context(), "kö")
	require.NoError(t, err)
	defer func() { _ = lock.Release(t.Context()) }()
	_, err = b.TryAcquire(t.Context(), "kö")
	assert.ErrorIs(t, err, dblock.ErrNotAcquired)

	fence, _ := lock.Fence()
	refused := func(err error) {
		t.Helper()
		assert.ErrorIs(t, err, dblock.ErrUnsupported)
		assert.ErrorContains(t, err, "client_encoding = LATIN1")
	}
	tx, err := latin.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	db := stdlib.OpenDBFromPool(latin)
	defer func() { _ = db.Close() }()
	of, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = of.Rollback() }()
	utf8 := pool(func(c *pgxpool.Config) { c.MaxConns = 1 })
	store, err := pginventory.New(t.Context(), utf8, inventory.Options{})
	require.NoError(t, err)
	defer func() { _ = store.Close(t.Context()) }()
	for _, tx := range []pglock.Tx{tx, pglock.SQLTx(of)} {
		refused(b.Guard(t.Context(), tx, fence))
		refused(pglock.Guards{}.AdvanceFence(t.Context(), tx, fence, "büro"))
		_, err := pginventory.ReserveTx(t.Context(), store, tx, inventory.Request{Key: "ö", SKU: "ä", Buyer: "b", Qty: 1})
		refused(err)
	}
	_, err = pginventory.New(t.Context(), latin, inventory.Options{})
	refused(err)
}
