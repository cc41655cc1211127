package mysqlqueue

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/queue/internal/driver"
)

// TestPurgePassesOverLockedJobs: another transaction has the first dead job locked.
func TestPurgePassesOverLockedJobs(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sql.DB, d *database) {
		for n := range 5 {
			query := fmt.Sprintf("INSERT INTO dblock_queue_dead (job_id, queue, kind, priority, attempt, max_attempts, enqueued_at, last_error, payload) "+
				"VALUES ('%016d', 'q', 'k', 0, 1, 1, '2026-01-01', '', '')", n)
			if _, err := db.ExecContext(t.Context(), query); err != nil {
				t.Fatal(err)
			}
		}
		other, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Rollback() }()
		if _, err := other.ExecContext(t.Context(), "SELECT 1 FROM dblock_queue_dead WHERE job_id = '0000000000000000' FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		n, err := d.Maintenance().Prune(t.Context(), &driver.PruneRequest{Kind: driver.DeadJobs, Queue: "q", Max: 3})
		if err != nil || n != 3 {
			t.Errorf("%d jobs are dropped, %v", n, err)
		}
	})
}
