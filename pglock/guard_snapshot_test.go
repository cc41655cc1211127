package pglock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// TestGuardsOfOlderSnapshots: a transaction that does not see the lock says nothing about it.
func TestGuardsOfOlderSnapshots(t *testing.T) {
	t.Parallel()
	pool := testdb.MigratedPostgres(t)
	leases, err := pglock.NewLeaseLocker(t.Context(), pool, pglock.LeaseOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, leases.Close(context.Background())) })
	modes := map[string][]dblock.Option{"exclusive": nil, "shared": {dblock.WithShared()}, "permits": {dblock.WithPermits(2, 3)}}
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for mode, options := range modes {
			for _, row := range []string{"a new row", "an old row"} {
				key := fmt.Sprintf("%s, %s, %s", level, mode, row)
				if row == "an old row" {
					lock, err := leases.Acquire(t.Context(), key, options...)
					require.NoError(t, err)
					require.NoError(t, lock.Release(t.Context()))
				}
				older := begin(t, pool, level)
				lock, err := leases.Acquire(t.Context(), key, options...)
				require.NoError(t, err)
				fence, _ := lock.Fence()
				assert.ErrorIs(t, leases.Guard(t.Context(), older, fence), dblock.ErrConflict, key)
				assert.NoError(t, older.Rollback(t.Context()))

				later := begin(t, pool, level)
				assert.NoError(t, leases.Guard(t.Context(), later, fence), key)
				assert.NoError(t, later.Rollback(t.Context()))
				assert.NoError(t, lock.Release(t.Context()), key)

				after := begin(t, pool, level)
				want := dblock.ErrFenced
				if mode == "shared" {
					want = dblock.ErrConflict
				}
				assert.ErrorIs(t, leases.Guard(t.Context(), after, fence), want, key)
				assert.NoError(t, after.Rollback(t.Context()))
			}
		}
	}
}

// TestGuardsOfChangedRows: the row has changed since the transaction's snapshot, which shows
// neither whether the lock is held still nor whether the fence has advanced. A new snapshot does.
func TestGuardsOfChangedRows(t *testing.T) {
	t.Parallel()
	pool := testdb.MigratedPostgres(t)
	leases, err := pglock.NewLeaseLocker(t.Context(), pool, pglock.LeaseOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, leases.Close(context.Background())) })
	modes := map[string][]dblock.Option{"exclusive": nil, "shared": {dblock.WithShared()}, "permits": {dblock.WithPermits(2, 3)}}
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for mode, options := range modes {
			key := fmt.Sprintf("%s, %s", level, mode)
			lock, err := leases.Acquire(t.Context(), key, options...)
			require.NoError(t, err)
			fence, _ := lock.Fence()
			older := begin(t, pool, level)
			require.NoError(t, lock.ExpireIn(t.Context(), time.Hour))
			assert.ErrorIs(t, leases.Guard(t.Context(), older, fence), dblock.ErrConflict, key)
			assert.NoError(t, older.Rollback(t.Context()))
			later := begin(t, pool, level)
			assert.NoError(t, leases.Guard(t.Context(), later, fence), key)
			assert.NoError(t, later.Rollback(t.Context()))
			assert.NoError(t, lock.Context().Err(), key)
			require.NoError(t, lock.Release(t.Context()))
			if mode == "exclusive" {
				fencesOfChangedRows(t, pool, level, fence)
			}
		}
	}
}

func fencesOfChangedRows(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel, fence dblock.Fence) {
	t.Helper()
	guards, resource := pglock.Guards{}, fence.Key
	older := begin(t, pool, level)
	for _, token := range []int64{fence.Token, fence.Token + 1} {
		tx := begin(t, pool, pgx.ReadCommitted)
		require.NoError(t, guards.AdvanceFence(t.Context(), tx, dblock.Fence{Key: fence.Key, Token: token, Handle: fence.Handle}, resource))
		require.NoError(t, tx.Commit(t.Context()))
		if token == fence.Token {
			assert.NoError(t, older.Rollback(t.Context()))
			older = begin(t, pool, level)
		}
	}
	assert.ErrorIs(t, guards.CheckFence(t.Context(), older, fence, resource), dblock.ErrConflict)
	assert.NoError(t, older.Rollback(t.Context()))
	later := begin(t, pool, level)
	assert.ErrorIs(t, guards.CheckFence(t.Context(), later, fence, resource), dblock.ErrFenced)
	assert.NoError(t, later.Rollback(t.Context()))
}

// begin begins a transaction that has read.
func begin(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT count(*) FROM dblock_lease")
	require.NoError(t, err)
	return tx
}
