package pgqueue_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// TestJobsOfOldClaimsAreListed has 40 claims of which all jobs but one have ended. A claim lists
// these jobs until all have ended. The others are listed nevertheless, the oldest claim first.
func TestJobsOfOldClaimsAreListed(t *testing.T) {
	t.Parallel()
	host := testdb.MigratedPostgres(t)
	const job = "('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid"
	for _, statement := range []string{
		`INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, payload)
		 SELECT ` + job + `, 'default', 'k', 0, 1, '' FROM generate_series(1, 40) n`,
		`INSERT INTO dblock_queue_claim (claim_id, member_id, queue, claimed_at, job_ids)
		 SELECT gen_random_uuid(), gen_random_uuid(), 'default', now() + n * interval '1 s',
		        array_append(array_fill(gen_random_uuid(), ARRAY[499]), ` + job + `)
		 FROM generate_series(1, 40) n`,
	} {
		if _, err := host.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	q, err := pgqueue.New(t.Context(), host, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := q.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	jobs, err := q.List(t.Context(), queue.Filter{State: queue.JobClaimed, Limit: 1000})
	if err != nil || len(jobs) != 40 {
		t.Fatalf("%d jobs, %v, want 40", len(jobs), err)
	}
	for i := 1; i < len(jobs); i++ {
		if jobs[i].At.Before(jobs[i-1].At) {
			t.Errorf("job %d was claimed before the one listed before it", i)
		}
	}
}
