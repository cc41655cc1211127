package mysqlqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
)

// TestMembersThatAreGone: a worker deletes the row of a process that was killed without claims, and
// not that of one that may yet be looked for.
func TestMembersThatAreGone(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db := testdb.MigratedMySQL(t, kind)
			for label, minutes := range map[string]int{"killed": 120, "just killed": 1} {
				_, err := db.ExecContext(t.Context(), `INSERT INTO dblock_member (member_id, label, expires_at)
					VALUES (UNHEX(REPLACE(UUID(), '-', '')), ?, UTC_TIMESTAMP(6) - INTERVAL ? MINUTE)`, label, minutes)
				if err != nil {
					t.Fatal(err)
				}
			}
			q, err := mysqlqueue.New(t.Context(), db, queue.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = q.Close(context.Background()) }()
			if err := queue.Handle(q, "note", func(context.Context, queue.Job[int]) error { return nil }); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			worked := make(chan error, 1)
			go func() { worked <- q.Work(ctx, queue.WorkerOptions{}) }()
			defer func() { stop(); <-worked }()
			for killed, both := 1, 0; killed > 0; time.Sleep(10 * time.Millisecond) {
				err := db.QueryRowContext(t.Context(), `SELECT COALESCE(SUM(label = 'killed'), 0), COUNT(*)
					FROM dblock_member WHERE label LIKE '%killed'`).Scan(&killed, &both)
				if err != nil {
					t.Fatal(err)
				}
				if both == killed {
					t.Fatal("the row of a process that expired a minute ago was deleted")
				}
			}
		})
	}
}
