package pgqueue

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// maxRead is how many rows a list looks through that are not in the order of their queue.
const maxRead = 10_000

// maxClaimed is how many jobs of claims a list looks at, those that have ended included.
const maxClaimed = 1_000_000

// admin is driver.Admin.
type admin struct{ d *database }

// SetPaused notes since when, or drops the note.
func (a admin) SetPaused(ctx context.Context, queue string, paused bool) error {
	if paused {
		return a.d.q.PauseQueue(ctx, a.d.db, queue)
	}
	return a.d.q.ResumeQueue(ctx, a.d.db, queue)
}

// IsPaused reads the note.
func (a admin) IsPaused(ctx context.Context, queue string) (bool, error) {
	paused, err := a.d.q.IsPaused(ctx, a.d.db, queue)
	return paused, sqlerr.Unwritten(err)
}

// NextQueue looks at the ends of five indexes.
func (a admin) NextQueue(ctx context.Context, after string) (string, error) {
	return a.d.q.NextQueue(ctx, a.d.db, after)
}

// Count reads as much as it counts, and the first jobs of each priority.
func (a admin) Count(ctx context.Context, queue string, most int) (driver.Counts, error) {
	row, err := a.d.q.CountQueue(ctx, a.d.db, queue, int32(most))
	if err != nil {
		return driver.Counts{}, err
	}
	c := driver.Counts{
		Ready: int(row.Ready), Scheduled: int(row.Scheduled), Retrying: int(row.Retrying), Blocked: int(row.Blocked), Dead: int(row.Dead),
		Paused: postgres.FromMicros(row.PausedUs),
	}
	for after, more := int32(math.MinInt16)-1, c.Ready > 0; more; {
		some, err := a.d.q.OldestReady(ctx, a.d.db, queue, after, driver.AgeStep)
		if err != nil {
			return driver.Counts{}, err
		}
		c.Oldest, after, more = max(c.Oldest, postgres.FromMicros(some.AgeUs)), int32(some.Last), some.Jobs == driver.AgeStep
	}
	return c, nil
}

// Claimed reads as much as it counts.
func (a admin) Claimed(ctx context.Context, most int) (map[string]int, error) {
	rows, err := a.d.q.CountClaimed(ctx, a.d.db, int32(most))
	claimed := make(map[string]int, len(rows))
	for _, r := range rows {
		claimed[r.Queue] = int(r.Jobs)
	}
	return claimed, err
}

// What keeps vacuum from what workers leave behind; only the server's own views have it. Of others'
// sessions a role without the rights of pg_read_all_stats sees that they have a snapshot, and not
// since when.
const (
	deadTuples     = "SELECT COALESCE(sum(n_dead_tup), 0)::bigint FROM pg_catalog.pg_stat_all_tables WHERE relname::text LIKE 'dblock\\_queue%'"
	oldestSnapshot = `SELECT COALESCE(EXTRACT(EPOCH FROM clock_timestamp() - pg_catalog.min(xact_start)) * 1000000::numeric, 0)::bigint FROM pg_catalog.pg_stat_activity
WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()`
)

// Health asks the server's views.
func (a admin) Health(ctx context.Context) (driver.Health, error) {
	h := driver.Health{HistoryLength: -1}
	if err := a.d.pool.QueryRow(ctx, deadTuples).Scan(&h.DeadTuples); err != nil {
		return h, err
	}
	var us int64
	err := a.d.pool.QueryRow(ctx, oldestSnapshot).Scan(&us)
	h.OldestSnapshot = postgres.FromMicros(us)
	return h, err
}

// Find reads the job, and then, in one snapshot, where it is.
func (a admin) Find(ctx context.Context, job driver.ID) (r driver.Record, found bool, err error) {
	j, err := a.d.q.JobRow(ctx, a.d.db, postgres.UUID(job))
	if noRows(err) {
		return a.findEnded(ctx, job)
	}
	if err != nil {
		return r, false, err
	}
	r = driver.Record{
		ID: job, Queue: j.Queue, Kind: j.Kind, Priority: j.Priority, Attempt: j.Attempt, MaxAttempts: j.MaxAttempts, EnqueuedAt: j.EnqueuedAt,
		UniqueKey: j.UniqueKey, GroupKey: j.GroupKey, LastError: j.LastError, Payload: j.Payload,
	}
	positions, err := a.d.q.FindJob(ctx, a.d.db, pgdb.FindJobParams{
		Queue: j.Queue, Priority: j.Priority, EnqueuedAt: j.EnqueuedAt, JobID: postgres.UUID(job), GroupKey: j.GroupKey,
	})
	if err != nil || len(positions) == 0 {
		return r, err == nil, err
	}
	p := positions[0]
	r.State, r.At, r.Seq, r.Member, r.Claim = driver.State(p.State), p.At, p.Seq, p.MemberID.Bytes, p.ClaimID.Bytes
	r.Admitted = p.Admitted
	if r.State == driver.Claimed {
		r.Worker, err = a.d.q.MemberLabel(ctx, a.d.db, p.MemberID)
		if noRows(err) {
			err = nil
		}
	}
	return r, err == nil, err
}

// findEnded looks among the dead, and in what is kept.
func (a admin) findEnded(ctx context.Context, job driver.ID) (r driver.Record, found bool, err error) {
	j, err := a.d.q.DeadRow(ctx, a.d.db, postgres.UUID(job))
	if noRows(err) {
		return a.findKept(ctx, job)
	}
	if err != nil {
		return r, false, err
	}
	return driver.Record{
		ID: job, Queue: j.Queue, Kind: j.Kind, State: driver.Dead, Priority: j.Priority, Attempt: j.Attempt, MaxAttempts: j.MaxAttempts,
		EnqueuedAt: j.EnqueuedAt, At: j.At, UniqueKey: j.UniqueKey, GroupKey: j.GroupKey, LastError: j.LastError, Payload: j.Payload,
	}, true, nil
}

// AnyDead looks for one.
func (a admin) AnyDead(ctx context.Context, queue string, age time.Duration) (bool, error) {
	return a.d.q.AnyDead(ctx, a.d.db, queue, age.Microseconds())
}

// RetryJob is one statement, which waits for the rows of jobs and of unique keys for a moment only.
// It passes over none.
func (a admin) RetryJob(ctx context.Context, jobs []driver.ID) (revived, locked int, err error) {
	err = a.d.inTx(ctx, driver.BriefWait, func(on pgdb.DBTX) (commit bool, err error) {
		n, err := a.d.q.RetryJob(ctx, on, postgres.UUIDs(jobs))
		revived = int(n)
		return n > 0, err
	})
	if err != nil {
		return 0, 0, err
	}
	return revived, 0, nil
}

// RequestCancel is one statement, which waits briefly for the claim.
func (a admin) RequestCancel(ctx context.Context, of member.ID, claim, job driver.ID) (held bool, err error) {
	err = a.d.inTx(ctx, driver.LongWait, func(on pgdb.DBTX) (commit bool, err error) {
		held, err = a.d.q.RequestCancel(ctx, on, postgres.UUID(claim), postgres.UUID(of), postgres.UUID(job))
		return held, err
	})
	return held, err
}

func noRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
