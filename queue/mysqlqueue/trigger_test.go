package mysqlqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
)

// TestTriggersHideNoHeartbeat: a worker runs jobs after several heartbeats, though an audit trigger
// hides the insert id of each.
func TestTriggersHideNoHeartbeat(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db := testdb.MigratedMySQL(t, kind)
			exec(t, db, "CREATE TABLE audit (id BIGINT AUTO_INCREMENT PRIMARY KEY, member_id BINARY(16))")
			exec(t, db, "CREATE TRIGGER audited AFTER UPDATE ON dblock_member FOR EACH ROW INSERT INTO audit (member_id) VALUES (new.member_id)")
			q, err := mysqlqueue.New(t.Context(), db, queue.Options{TTL: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = q.Close(context.Background()) }()
			ran := make(chan int, 2)
			if err := queue.Handle(q, "note", func(_ context.Context, job queue.Job[int]) error {
				ran <- job.Args
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			worked := make(chan error, 1)
			go func() { worked <- q.Work(ctx, queue.WorkerOptions{}) }()
			defer func() { stop(); <-worked }()
			for n := range 2 {
				if _, err := q.Enqueue(t.Context(), queue.Task{Kind: "note", Args: n}); err != nil {
					t.Fatal(err)
				}
				select {
				case <-ran:
				case <-time.After(time.Minute):
					t.Fatalf("job %d does not run after %d heartbeats", n, 3*n)
				}
				for beats := 0; beats < 3; time.Sleep(10 * time.Millisecond) {
					if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM audit").Scan(&beats); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}
