package mysqlqueue_test

import (
	"context"
	"database/sql"
	"errors"
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
				ids, err := q.EnqueueMany(ctx, []queue.Task{{Kind: "note", Group: "g"}, {Kind: "note", Group: "g", Delay: time.Microsecond}})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := q.Cancel(ctx, ids[0]); err != nil && !errors.Is(err, queue.ErrNoJob) { // it may have ended
					t.Errorf("a job that waits: %v", err)
				}
				for scheduled := 1; scheduled > 0; time.Sleep(10 * time.Millisecond) {
					if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM dblock_queue_scheduled").Scan(&scheduled); err != nil {
						t.Fatal(err)
					}
					select {
					case <-late:
						t.Fatal("a delayed job has not come to its group")
					default:
					}
				}
			})
		}
	}
}

// TestAStarvedProcessGivesMaintenanceAway: the host's statements keep the pool of the elected
// process busy, so that each of its own waits for a connection. Another process is elected.
func TestAStarvedProcessGivesMaintenanceAway(t *testing.T) {
	t.Parallel()
	const conns, statements = 10, 60
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dsn := testdb.Migrated(t, kind)
			pool := func(conns int) *sql.DB {
				db, err := sql.Open("mysql", dsn)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = db.Close() })
				db.SetMaxOpenConns(conns)
				return db
			}
			idle, busy := pool(0), pool(conns)
			working, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			defer all.Wait()
			defer stop()
			works := func(db *sql.DB) (elected <-chan struct{}) {
				now := make(chan struct{}, 1)
				q, err := mysqlqueue.New(t.Context(), db, queue.Options{Observer: queue.Observer{Elected: func(task string, elected bool) {
					if task == "promote" && elected {
						now <- struct{}{}
					}
				}}})
				if err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					_ = q.Work(working, queue.WorkerOptions{})
					_ = q.Close(context.Background())
				})
				return now
			}
			<-works(busy)
			for range statements {
				all.Go(func() {
					for working.Err() == nil {
						_, _ = busy.ExecContext(working, "DO SLEEP(0.3)")
					}
				})
			}
			select {
			case <-works(idle):
			case <-time.After(time.Minute):
				t.Error("a process whose pool is exhausted stays elected")
			}
		})
	}
}
