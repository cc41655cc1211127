package pgqueue_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// TestClientEncoding: in a transaction of another encoding EnqueueTx would write other names, and
// is refused. Enqueue and the end of a job in its handler's transaction write the right ones.
func TestClientEncoding(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(testdb.Migrated(t, devdb.Postgres))
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["client_encoding"] = "LATIN1"
	latin, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(latin.Close)
	q, err := pgqueue.New(t.Context(), latin, queue.Options{})
	require.NoError(t, err)
	defer func() { _ = q.Close(context.Background()) }()

	task := queue.Task{Kind: "größe", Args: 1, Queue: "größen", Unique: "café", Group: "konto-ä"}
	plain := task
	plain.Unique, plain.Group = "", ""
	many := make([]queue.Task, 1000)
	for i := range many {
		many[i] = plain
	}
	db := stdlib.OpenDBFromPool(latin)
	t.Cleanup(func() { _ = db.Close() })
	refuses := func(tx pglock.Tx, rest ...queue.Task) {
		t.Helper()
		_, err := pgqueue.EnqueueTx(t.Context(), q, tx, rest...)
		assert.ErrorIs(t, err, dblock.ErrUnsupported)
		assert.NotErrorIs(t, err, dblock.ErrUnavailable)
		assert.ErrorContains(t, err, "client_encoding = LATIN1")
	}
	for _, tasks := range [][]queue.Task{{task}, {plain}, many} {
		tx, err := latin.Begin(t.Context())
		require.NoError(t, err)
		refuses(tx, tasks...)
		require.NoError(t, tx.Commit(t.Context()), "nothing was sent")
		of, err := db.BeginTx(t.Context(), &sql.TxOptions{})
		require.NoError(t, err)
		refuses(pglock.SQLTx(of), tasks...)
		require.NoError(t, of.Commit())
	}

	handled := make(chan error, 1)
	require.NoError(t, pgqueue.HandleTx(q, "größe", func(_ context.Context, tx pgx.Tx, _ queue.Job[int]) error {
		refuses(tx, plain)
		handled <- nil
		return nil
	}))
	_, err = q.Enqueue(t.Context(), task)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	go func() { worked <- q.Work(ctx, queue.WorkerOptions{Queue: "größen"}) }()
	<-handled
	stop()
	require.NoError(t, <-worked)
	var left int
	const count = "SELECT (SELECT count(*) FROM dblock_queue_job) + (SELECT count(*) FROM dblock_queue_unique)"
	require.NoError(t, latin.QueryRow(t.Context(), count).Scan(&left))
	assert.Zero(t, left)
}
