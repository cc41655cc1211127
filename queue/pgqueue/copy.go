package pgqueue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// copyFrom is of how many jobs on they are copied: it takes a few round trips more, and a third
// less of the server's time and log.
const copyFrom = 1000

// copier is a transaction that knows COPY: not one of database/sql.
type copier interface {
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)
}

// copyJobs enqueues jobs without unique keys. What is ready gets its place in line in the order of
// the jobs, which differ by a microsecond. Jobs of groups without a delay are returned: they are to
// be placed.
func (d *database) copyJobs(ctx context.Context, on pgdb.DBTX, tx copier, jobs []driver.Insert) (grouped []driver.Insert, err error) {
	rows, err := on.Query(ctx, pgdb.TimeToEnqueue)
	if err != nil {
		return nil, err
	}
	now, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[time.Time])
	if err != nil {
		return nil, err
	}
	var ready, later []int
	for i := range jobs {
		switch {
		case jobs[i].Delay > 0:
			later = append(later, i)
		case jobs[i].Group != "":
			grouped = append(grouped, jobs[i])
		default:
			ready = append(ready, i)
		}
	}
	_, err = tx.CopyFrom(ctx, d.Table("dblock_queue_job"),
		[]string{"job_id", "queue", "kind", "priority", "max_attempts", "enqueued_at", "payload", "group_key", "group_most"},
		pgx.CopyFromSlice(len(jobs), func(i int) ([]any, error) {
			j := &jobs[i]
			return []any{postgres.UUID(j.ID), j.Queue, j.Kind, j.Priority, j.MaxAttempts, now, j.Payload, groupOf(j), pgtype.Int4{Int32: j.GroupLimit, Valid: j.Group != ""}}, nil
		}))
	if err == nil && len(ready) > 0 {
		_, err = tx.CopyFrom(ctx, d.Table("dblock_queue_ready"), []string{"queue", "priority", "ready_at", "job_id"},
			pgx.CopyFromSlice(len(ready), func(i int) ([]any, error) {
				j := &jobs[ready[i]]
				return []any{j.Queue, j.Priority, now.Add(time.Duration(i) * time.Microsecond), postgres.UUID(j.ID)}, nil
			}))
	}
	if err == nil && len(later) > 0 {
		_, err = tx.CopyFrom(ctx, d.Table("dblock_queue_scheduled"), []string{"run_at", "job_id", "queue", "priority", "group_key"},
			pgx.CopyFromSlice(len(later), func(i int) ([]any, error) {
				j := &jobs[later[i]]
				return []any{now.Add(max(j.Delay, time.Microsecond)), postgres.UUID(j.ID), j.Queue, j.Priority, groupOf(j)}, nil
			}))
	}
	return grouped, err
}

// groupOf is the group of a job; null: it has none.
func groupOf(j *driver.Insert) pgtype.Text { return pgtype.Text{String: j.Group, Valid: j.Group != ""} }
