package pgqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// TestMembersThatAreGone: a worker deletes the row of a process that was killed without claims, and
// not that of one that may yet be looked for.
func TestMembersThatAreGone(t *testing.T) {
	t.Parallel()
	db := testdb.MigratedPostgres(t)
	for label, ago := range map[string]string{"killed": "2 hours", "just killed": "1 minute"} {
		_, err := db.Exec(t.Context(), `INSERT INTO dblock_member (member_id, label, expires_at)
			VALUES (gen_random_uuid(), $1, clock_timestamp() - $2::text::interval)`, label, ago)
		if err != nil {
			t.Fatal(err)
		}
	}
	q, err := pgqueue.New(t.Context(), db, queue.Options{})
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
		err := db.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE label = 'killed'), count(*) FILTER (WHERE label LIKE '%killed')
			FROM dblock_member`).Scan(&killed, &both)
		if err != nil {
			t.Fatal(err)
		}
		if both == killed {
			t.Fatal("the row of a process that expired a minute ago was deleted")
		}
	}
}
