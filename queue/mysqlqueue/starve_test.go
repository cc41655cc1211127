package mysqlqueue_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
)

// TestProducersStarveNoEnds: several producers enqueue into one group, one transaction after the
// other, so that always one of them waits in the server's queue for the group's row. Jobs of the
// group end all the same.
func TestProducersStarveNoEnds(t *testing.T) {
	t.Parallel()
	const producers, jobs = 4, 8
	for _, kind := range family() {
		for _, way := range []string{"Handle", "HandleTx"} {
			t.Run(string(kind)+"/"+way, func(t *testing.T) {
				t.Parallel()
				db, ctx := testdb.MigratedMySQL(t, kind), t.Context()
				ended := make(chan struct{})
				recorded := func(string, int, time.Duration) {
					select {
					case ended <- struct{}{}:
					default:
					}
				}
				q, err := mysqlqueue.New(ctx, db, queue.Options{Observer: queue.Observer{Recorded: recorded}})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = q.Close(context.Background()) }()
				none := func(context.Context, queue.Job[int]) error { return nil }
				if way == "Handle" {
					err = queue.Handle(q, "note", none)
				} else {
					err = mysqlqueue.HandleTx(q, "note", func(ctx context.Context, _ *sql.Tx, job queue.Job[int]) error { return none(ctx, job) })
				}
				if err != nil {
					t.Fatal(err)
				}
				working, stop := context.WithCancel(ctx)
				var all sync.WaitGroup
				defer all.Wait()
				defer stop()
				enqueue := func(tx *sql.Tx) error {
					_, err := mysqlqueue.EnqueueTx(working, q, tx, queue.Task{Kind: "note", Group: "g"})
					return err
				}
				for range producers {
					all.Go(func() {
						for working.Err() == nil {
							if err := mysqllock.RunTx(working, db, mysqllock.TxOptions{Attempts: 20}, enqueue); err != nil && working.Err() == nil {
								t.Error(err)
							}
						}
					})
				}
				all.Go(func() { _ = q.Work(working, queue.WorkerOptions{}) })
				late := time.After(time.Minute)
				for n := 0; n < jobs; n++ {
					select {
					case <-ended:
					case <-late:
						t.Fatalf("%d jobs have ended in a minute", n)
					}
				}
			})
		}
	}
}
