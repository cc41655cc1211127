package pgqueue_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// TestFaultsNoJobIsAheadOfTheStandby freezes a synchronous standby. Jobs that are enqueued then are
// on the primary alone, as the test sees, and neither a lookup after the lost reply nor a duplicate
// answers with them.
func TestFaultsNoJobIsAheadOfTheStandby(t *testing.T) {
	t.Parallel()
	primary := testdb.Own(t, devdb.Postgres)
	if primary == nil {
		return
	}
	standby := testdb.Replica(t, primary)
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, primary.AdminDSN())
	require.NoError(t, err)
	defer pool.Close()
	_, err = migrations.Up(ctx, pool, migrations.Options{})
	require.NoError(t, err)
	q, err := pgqueue.New(ctx, pool, queue.Options{Timeout: 2 * time.Second})
	require.NoError(t, err)
	defer func() { assert.NoError(t, q.Close(context.Background())) }()

	require.NoError(t, standby.Freeze())
	unique := queue.Task{Kind: "k", Unique: "u"}
	first := [][]queue.Task{{{Kind: "k"}}, {{Kind: "k"}, {Kind: "k"}}, {unique}}
	var all sync.WaitGroup
	for _, tasks := range first {
		all.Go(func() {
			_, err := q.EnqueueMany(ctx, tasks)
			assert.ErrorIs(t, err, dblock.ErrOutcomeUnknown)
		})
	}
	all.Wait()
	require.Eventually(t, func() (is bool) {
		require.NoError(t, pool.QueryRow(ctx, "SELECT count(*) = 4 FROM dblock_queue_job").Scan(&is))
		return is
	}, time.Minute, 10*time.Millisecond, "no job that a call could answer with is visible")
	_, err = q.Enqueue(ctx, unique)
	assert.ErrorIs(t, err, dblock.ErrOutcomeUnknown)
	var dup *queue.DuplicateError
	assert.False(t, errors.As(err, &dup), "%v", err)

	require.NoError(t, standby.Thaw())
	assert.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := q.Enqueue(ctx, unique)
		assert.ErrorAs(c, err, &dup)
	}, time.Minute, 10*time.Millisecond)
}
