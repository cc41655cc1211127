package mysqlqueue

import (
	"database/sql"
	"errors"
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
		n, err = d.Maintenance().Prune(t.Context(), &driver.PruneRequest{Kind: driver.DeadJobs, Queue: "q", Max: 3})
		is, failed := d.Admin().AnyDead(t.Context(), "q", 0)
		another, failed2 := d.Admin().AnyDead(t.Context(), "another", 0)
		if n != 1 || !is || another || errors.Join(err, failed, failed2) != nil {
			t.Errorf("%d jobs are dropped; dead are %v, in another queue %v: %v, %v, %v", n, is, another, err, failed, failed2)
		}
	})
}

// TestRetryPassesOverLockedJobs: another transaction has two dead jobs locked. The others are
// retried, and the driver counts those two.
func TestRetryPassesOverLockedJobs(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sql.DB, d *database) {
		var ids []driver.ID
		for n := range 5 {
			ids = append(ids, driver.ID([]byte(fmt.Sprintf("%016d", n))))
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
		for _, n := range []int{1, 3} { // each by its key: a scan would lock all
			if _, err := other.ExecContext(t.Context(), fmt.Sprintf("SELECT 1 FROM dblock_queue_dead WHERE job_id = '%016d' FOR UPDATE", n)); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []int{3, 0} {
			revived, locked, err := d.Admin().RetryJob(t.Context(), ids)
			if err != nil || revived != want || locked != 2 {
				t.Errorf("%d jobs are retried, and %d locked, %v", revived, locked, err)
			}
		}
	})
}
