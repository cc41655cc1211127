package pgqueue_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// TestALockedTableOfDelayedJobsStopsNoOthers: it is locked, as while an index is made on it. Jobs
// without a delay are enqueued meanwhile.
func TestALockedTableOfDelayedJobsStopsNoOthers(t *testing.T) {
	t.Parallel()
	host, ctx := testdb.MigratedPostgres(t), t.Context()
	q, err := pgqueue.New(ctx, host, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := host.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "LOCK TABLE dblock_queue_scheduled IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	for _, task := range []queue.Task{{Kind: "mail"}, {Kind: "mail", Queue: "other", Priority: 3}} {
		if _, err := q.Enqueue(ctx, task); err != nil {
			t.Errorf("%+v: %v", task, err)
		}
	}
	if err := q.Close(ctx); err != nil {
		t.Error(err)
	}
}
