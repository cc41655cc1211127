package pgqueue

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// look is how many rows a list looks through that are not in the order of their queue.
const look = 10_000

// Pause notes since when.
func (d *database) Pause(ctx context.Context, queue string) error {
	return d.q.PauseQueue(ctx, d.db, queue)
}

// Resume drops the note.
func (d *database) Resume(ctx context.Context, queue string) error {
	return d.q.ResumeQueue(ctx, d.db, queue)
}

// IsPaused reads the note.
func (d *database) IsPaused(ctx context.Context, queue string) (bool, error) {
	paused, err := d.q.IsPaused(ctx, d.db, queue)
	return paused, sqlerr.Unwritten(err)
}

// NextQueue looks at the ends of five indexes.
func (d *database) NextQueue(ctx context.Context, after string) (string, error) {
	return d.q.NextQueue(ctx, d.db, after)
}

// Count reads as much as it counts, and the first jobs of each priority.
func (d *database) Count(ctx context.Context, queue string, most int) (engine.Counts, error) {
	row, err := d.q.CountQueue(ctx, d.db, queue, int32(most))
	if err != nil {
		return engine.Counts{}, err
	}
	c := engine.Counts{
		Ready: int(row.Ready), Scheduled: int(row.Scheduled), Retrying: int(row.Retrying), Blocked: int(row.Blocked), Dead: int(row.Dead),
		Paused: postgres.FromMicros(row.PausedUs),
	}
	for after, more := int32(math.MinInt16)-1, c.Ready > 0; more; {
		some, err := d.q.OldestReady(ctx, d.db, queue, after, engine.AgeStep)
		if err != nil {
			return engine.Counts{}, err
		}
		c.Oldest, after, more = max(c.Oldest, postgres.FromMicros(some.AgeUs)), int32(some.Last), some.Jobs == engine.AgeStep
	}
	return c, nil
}

// Claimed reads as much as it counts.
func (d *database) Claimed(ctx context.Context, most int) (map[string]int, error) {
	rows, err := d.q.CountClaimed(ctx, d.db, int32(most))
	claimed := make(map[string]int, len(rows))
	for _, r := range rows {
		claimed[r.Queue] = int(r.Jobs)
	}
	return claimed, err
}

// What keeps vacuum from what workers leave behind; only the server's own views have it. Of others' sessions a role without the rights of
// pg_read_all_stats sees that they have a snapshot, and not since when.
const (
	deadTuples     = "SELECT COALESCE(sum(n_dead_tup), 0)::bigint FROM pg_catalog.pg_stat_all_tables WHERE relname::text LIKE 'dblock\\_queue%'"
	oldestSnapshot = `SELECT COALESCE(EXTRACT(EPOCH FROM clock_timestamp() - pg_catalog.min(xact_start)) * 1000000::numeric, 0)::bigint FROM pg_catalog.pg_stat_activity
WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()`
)

// Health asks the server's views.
func (d *database) Health(ctx context.Context) (engine.Health, error) {
	h := engine.Health{HistoryLength: -1}
	if err := d.pool.QueryRow(ctx, deadTuples).Scan(&h.DeadTuples); err != nil {
		return h, err
	}
	var us int64
	err := d.pool.QueryRow(ctx, oldestSnapshot).Scan(&us)
	h.OldestSnapshot = postgres.FromMicros(us)
	return h, err
}

// Find reads the job, and then, in one snapshot, where it is.
func (d *database) Find(ctx context.Context, job engine.ID) (r engine.Record, found bool, err error) {
	j, err := d.q.JobRow(ctx, d.db, postgres.UUID(job))
	if noRows(err) {
		return d.findEnded(ctx, job)
	}
	if err != nil {
		return r, false, err
	}
	r = engine.Record{
		ID: job, Queue: j.Queue, Kind: j.Kind, Priority: j.Priority, Attempt: j.Attempt, MaxAttempts: j.MaxAttempts, EnqueuedAt: j.EnqueuedAt,
		UniqueKey: j.UniqueKey, GroupKey: j.GroupKey, LastError: j.LastError, Payload: j.Payload,
	}
	places, err := d.q.FindJob(ctx, d.db, pgdb.FindJobParams{
		Queue: j.Queue, Priority: j.Priority, EnqueuedAt: j.EnqueuedAt, JobID: postgres.UUID(job), GroupKey: j.GroupKey,
	})
	if err != nil || len(places) == 0 {
		return r, err == nil, err
	}
	p := places[0]
	r.State, r.At, r.Seq, r.Member, r.Claim = engine.State(p.State), p.At, p.Seq, p.MemberID.Bytes, p.ClaimID.Bytes
	r.Admitted = p.Admitted
	if r.State == engine.Claimed {
		r.Worker, err = d.q.MemberLabel(ctx, d.db, p.MemberID)
		if noRows(err) {
			err = nil
		}
	}
	return r, err == nil, err
}

// findEnded looks among the dead, and in what is kept.
func (d *database) findEnded(ctx context.Context, job engine.ID) (r engine.Record, found bool, err error) {
	j, err := d.q.DeadRow(ctx, d.db, postgres.UUID(job))
	if noRows(err) {
		return d.findKept(ctx, job)
	}
	if err != nil {
		return r, false, err
	}
	return engine.Record{
		ID: job, Queue: j.Queue, Kind: j.Kind, State: engine.Dead, Priority: j.Priority, Attempt: j.Attempt, MaxAttempts: j.MaxAttempts,
		EnqueuedAt: j.EnqueuedAt, At: j.At, UniqueKey: j.UniqueKey, GroupKey: j.GroupKey, LastError: j.LastError, Payload: j.Payload,
	}, true, nil
}

// Revive is one statement, which waits for the row of a unique key for a moment only.
func (d *database) Revive(ctx context.Context, jobs []engine.ID) (revived int, err error) {
	err = d.inTx(ctx, engine.BriefWait, func(on pgdb.DBTX) (commit bool, err error) {
		n, err := d.q.Revive(ctx, on, postgres.UUIDs(jobs))
		revived = int(n)
		return n > 0, err
	})
	if err != nil {
		return 0, err
	}
	return revived, nil
}

// IsLocked tells that it waited for longer.
func (*database) IsLocked(err error) bool { return postgres.IsLocked(err) }

// Forget deletes the row.
func (d *database) Forget(ctx context.Context, job engine.ID) (found bool, err error) {
	err = d.inTx(ctx, engine.LongWait, func(on pgdb.DBTX) (commit bool, err error) {
		n, err := d.q.ForgetDead(ctx, on, postgres.UUID(job))
		found = n > 0
		return found, err
	})
	return found, err
}

// Purge goes along the index of the times.
func (d *database) Purge(ctx context.Context, queue string, age time.Duration, most int) (int, error) {
	n, err := d.q.PurgeDead(ctx, d.db, queue, age.Microseconds(), int32(most))
	return int(n), err
}

// AskToCancel is one statement, which waits briefly for the claim.
func (d *database) AskToCancel(ctx context.Context, m member.ID, claim, job engine.ID) (held bool, err error) {
	err = d.inTx(ctx, engine.LongWait, func(on pgdb.DBTX) (commit bool, err error) {
		held, err = d.q.AskToCancel(ctx, on, postgres.UUID(claim), postgres.UUID(m), postgres.UUID(job))
		return held, err
	})
	return held, err
}

// Cancels goes along the key.
func (d *database) Cancels(ctx context.Context, m member.ID, after engine.ID) ([]engine.Request, error) {
	found, err := d.q.CancelsOf(ctx, d.db, postgres.UUID(m), postgres.UUID(after))
	requests := make([]engine.Request, len(found))
	for i, f := range found {
		requests[i] = engine.Request{Job: f.JobID.Bytes, Stands: f.Stands}
	}
	return requests, sqlerr.Unwritten(err)
}

// DropCancels deletes rows.
func (d *database) DropCancels(ctx context.Context, m member.ID, jobs []engine.ID) error {
	return d.q.DropCancels(ctx, d.db, postgres.UUID(m), postgres.UUIDs(jobs))
}

// PruneCancels deletes rows.
func (d *database) PruneCancels(ctx context.Context) error {
	_, err := d.q.PruneCancels(ctx, d.db)
	return err
}

func ids(of []pgtype.UUID) []engine.ID {
	all := make([]engine.ID, len(of))
	for i, u := range of {
		all[i] = u.Bytes
	}
	return all
}

func noRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
