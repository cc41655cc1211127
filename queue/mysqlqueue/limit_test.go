package mysqlqueue_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
)

// TestSelectLimitOfTheHost: a host sets sql_select_limit on the connections of its pool. Unique
// keys are freed, groups go on, and each job runs once.
func TestSelectLimitOfTheHost(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			const conns = 20
			db := testdb.MigratedMySQL(t, kind)
			db.SetMaxOpenConns(conns)
			db.SetMaxIdleConns(conns)
			q, err := mysqlqueue.New(t.Context(), db, queue.Options{History: 1})
			require.NoError(t, err)
			testdb.LimitReads(t, db, conns)

			const jobs = 30
			ran := make(chan int, 2*jobs)
			require.NoError(t, mysqlqueue.HandleTx(q, "k", func(_ context.Context, _ *sql.Tx, job queue.Job[int]) error {
				ran <- job.Args
				return nil
			}))
			tasks := make([]queue.Task, jobs)
			for i := range tasks {
				tasks[i] = queue.Task{Kind: "k", Args: i, Unique: fmt.Sprint("u", i), Group: fmt.Sprint("g", i%3)}
				if i%10 == 9 {
					tasks[i].Delay = time.Millisecond
				}
			}
			_, err = q.EnqueueMany(t.Context(), tasks)
			require.NoError(t, err)
			var taken *queue.DuplicateError
			_, err = q.Enqueue(t.Context(), tasks[0])
			require.ErrorAs(t, err, &taken)
			record, err := q.Show(t.Context(), taken.Duplicates[0].Job)
			require.NoError(t, err)
			assert.Equal(t, "u0", record.UniqueKey)

			ctx, stop := context.WithCancel(t.Context())
			worked := make(chan error, 1)
			go func() { worked <- q.Work(ctx, queue.WorkerOptions{Poll: 10 * time.Millisecond}) }()
			seen := make([]int, jobs)
			for range jobs {
				seen[<-ran]++
			}
			stop()
			require.NoError(t, <-worked)
			for i, n := range seen {
				assert.Equal(t, 1, n, "runs of job %d", i)
			}
			require.NoError(t, q.Close(context.Background()))
			for _, table := range []string{"job", "unique", "blocked", "claim", "ready", "scheduled"} {
				var left int
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM dblock_queue_"+table+" LIMIT 1").Scan(&left))
				assert.Zero(t, left, table)
			}
		})
	}
}
