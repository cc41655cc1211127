package pgqueue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
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

// TestALockedTablePutsOffNoJob: a delayed job that comes due while the table of those that are
// ready is locked is due at once when that has ended. A job that a CHECK refuses is put off.
func TestALockedTablePutsOffNoJob(t *testing.T) {
	t.Parallel()
	host, ctx := testdb.MigratedPostgres(t), t.Context()
	exec := func(query string) {
		t.Helper()
		if _, err := host.Exec(ctx, query); err != nil {
			t.Fatal(err)
		}
	}
	exec("ALTER TABLE dblock_queue_ready ADD CONSTRAINT host CHECK (priority <> 7)")
	hasty := host.Config()
	hasty.ConnConfig.RuntimeParams["lock_timeout"] = "50ms"
	pool, err := pgxpool.NewWithConfig(ctx, hasty)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	q, err := pgqueue.New(ctx, pool, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, priority := range []int16{0, 0, 7} {
		if _, err := q.Enqueue(ctx, queue.Task{Kind: "mail", Priority: priority, Delay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	exec("UPDATE dblock_queue_scheduled SET run_at = now() - interval '1 s'")
	tx, err := host.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "LOCK TABLE dblock_queue_ready IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	if n, err := q.Promote(ctx); n != 0 || !errors.Is(err, dblock.ErrBusy) {
		t.Errorf("behind the lock %d jobs are promoted, %v", n, err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := q.Promote(ctx); n != 2 || err == nil {
		t.Errorf("after the lock %d of 2 jobs are promoted, %v", n, err)
	}
	if n, err := q.Promote(ctx); n != 0 || err != nil {
		t.Errorf("then %d jobs are promoted, %v", n, err)
	}
	if err := q.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestATaskThatATriggerHoldsUpIsBusy: nothing was written, and the error says so.
func TestATaskThatATriggerHoldsUpIsBusy(t *testing.T) {
	t.Parallel()
	host, ctx := testdb.MigratedPostgres(t), t.Context()
	if _, err := host.Exec(ctx, `CREATE TABLE gate AS SELECT 1 AS id;
		CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM FROM gate FOR UPDATE; RETURN NEW; END';
		CREATE TRIGGER wait AFTER INSERT ON dblock_queue_job FOR EACH ROW EXECUTE FUNCTION wait()`); err != nil {
		t.Fatal(err)
	}
	q, err := pgqueue.New(ctx, host, queue.Options{Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := host.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "SELECT FROM gate FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Enqueue(ctx, queue.Task{Kind: "mail"}); !errors.Is(err, dblock.ErrBusy) {
		t.Errorf("Enqueue while a trigger waits: %v", err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := q.Close(ctx); err != nil {
		t.Error(err)
	}
}
