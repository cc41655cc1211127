package mysqlqueue_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/queue"
)

// TestStatementsFitThePacket: many jobs are enqueued, and many errors are kept, on a server that
// takes statements of 1 MiB. A payload that no statement can carry is refused, and so is none of
// the jobs beside it.
func TestStatementsFitThePacket(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			server := testdb.Own(t, kind, "--max-allowed-packet=1M")
			if server == nil {
				return
			}
			dsn, _, err := server.CreateDatabase(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open("mysql", dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			if _, err := migrations.Up(t.Context(), db, migrations.Options{}); err != nil {
				t.Fatal(err)
			}
			q, done, err := open(t.Context(), dsn, queue.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			defer func() { _ = q.Close(context.WithoutCancel(t.Context())) }()
			task := func(n int, o queue.Task) queue.Task {
				o.Kind, o.Args = "k", strings.Repeat("x", n)
				return o
			}
			var plain, keyed []queue.Task
			for i := range 40 {
				plain = append(plain, task(60<<10, queue.Task{}))
				keyed = append(keyed, task(60<<10, queue.Task{Unique: fmt.Sprint(i)}))
			}
			for name, tasks := range map[string][]queue.Task{"plain": plain, "keyed": keyed} {
				if _, err := q.EnqueueMany(t.Context(), tasks); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			var all sync.WaitGroup
			for i := range 40 {
				n := 100
				if i == 20 {
					n = 900 << 10
				}
				all.Go(func() {
					if _, err := q.Enqueue(t.Context(), task(n, queue.Task{})); (err != nil) != (n > 1000) {
						t.Errorf("a job of %d bytes: %v", n, err)
					}
				})
			}
			all.Wait()
			var n int
			if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM dblock_queue_job").Scan(&n); err != nil || n != 119 {
				t.Errorf("%d jobs are there, want 119: %v", n, err)
			}
		})
	}
}
