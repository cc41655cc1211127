package pgqueue_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

func TestNotifications(t *testing.T) {
	t.Parallel()
	suite.RunEach(t, notifyTests{}, func(t *testing.T) *notifyEnv { return &notifyEnv{suite.Migrated(t, devdb.Postgres)} })
}

// Jobs that are copied are notified when their transaction commits, too.
func TestTellsOfCopiedJobs(t *testing.T) {
	t.Parallel()
	host := testdb.MigratedPostgres(t)
	q, err := pgqueue.New(t.Context(), host, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close(t.Context()) }()
	var channel string
	if err := host.QueryRow(t.Context(), "SELECT 'dblock_queue_' || 'dblock_queue_job'::regclass::oid").Scan(&channel); err != nil {
		t.Fatal(err)
	}
	conn, err := host.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "listen "+channel); err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), host, func(tx pgx.Tx) error {
		_, err := pgqueue.EnqueueTx(t.Context(), q, tx, slices.Repeat([]queue.Task{{Kind: "x", Queue: "copied"}}, 1000)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Conn().WaitForNotification(t.Context()); err != nil || n.Payload != fmt.Sprintf("jobs :%x", sha256.Sum256([]byte("copied"))) {
		t.Errorf("heard %+v, %v", n, err)
	}
}
