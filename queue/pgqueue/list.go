package pgqueue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// List reads the first rows of where jobs in this state are, and then the jobs.
func (a admin) List(ctx context.Context, r *driver.ListRequest) ([]driver.Record, error) {
	queue, s, n := r.Queue, r.State, int32(r.Max)
	var records []driver.Record
	var err error
	switch s {
	case driver.Ready:
		var rows []pgdb.ListReadyRow
		rows, err = a.d.q.ListReady(ctx, a.d.db, queue, n)
		for _, r := range rows {
			records = append(records, driver.Record{ID: r.JobID.Bytes, At: r.At})
		}
	case driver.Scheduled, driver.Retrying:
		var rows []pgdb.ListScheduledRow
		rows, err = a.d.q.ListScheduled(ctx, a.d.db, queue, s == driver.Retrying, n)
		for _, r := range rows {
			records = append(records, driver.Record{ID: r.JobID.Bytes, At: r.At})
		}
	case driver.Blocked:
		var rows []pgtype.UUID
		rows, err = a.d.q.ListBlocked(ctx, a.d.db, queue, n)
		for _, r := range rows {
			records = append(records, driver.Record{ID: r.Bytes})
		}
	case driver.Claimed:
		var rows []pgdb.ListClaimedRow
		rows, err = a.d.q.ListClaimed(ctx, a.d.db, queue, maxClaimed, n)
		for _, r := range rows {
			records = append(records, driver.Record{ID: r.JobID.Bytes, At: r.At, Worker: r.Worker})
		}
	case driver.Dead:
		return a.listDead(ctx, r)
	default:
		return a.listHistory(ctx, queue, s, n)
	}
	if err != nil || len(records) == 0 {
		return nil, err
	}
	return a.fill(ctx, s, records)
}

// fill reads the jobs of records; one that is gone by now is left out.
func (a admin) fill(ctx context.Context, s driver.State, records []driver.Record) ([]driver.Record, error) {
	names := make([]driver.ID, len(records))
	for i, p := range records {
		names[i] = p.ID
	}
	rows, err := a.d.q.JobsOf(ctx, a.d.db, postgres.UUIDs(names))
	if err != nil {
		return nil, err
	}
	by := make(map[driver.ID]pgdb.JobsOfRow, len(rows))
	for _, r := range rows {
		by[r.JobID.Bytes] = r
	}
	var all []driver.Record
	for _, p := range records {
		j, ok := by[p.ID]
		if !ok {
			continue
		}
		p.State, p.Queue, p.Kind, p.Priority, p.Attempt, p.MaxAttempts = s, j.Queue, j.Kind, j.Priority, j.Attempt, j.MaxAttempts
		p.EnqueuedAt, p.LastError = j.EnqueuedAt, j.LastError
		all = append(all, p)
	}
	return all, nil
}

// always is later than any job dies.
var always = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// listDead reads along the index of the times.
func (a admin) listDead(ctx context.Context, r *driver.ListRequest) ([]driver.Record, error) {
	before := r.Before
	if before.IsZero() {
		before = always
	}
	rows, err := a.d.q.ListDead(ctx, a.d.db, pgdb.ListDeadParams{Queue: r.Queue, Before: before, BeforeID: postgres.UUID(r.BeforeID), Most: int32(r.Max)})
	all := make([]driver.Record, len(rows))
	for i, r := range rows {
		all[i] = driver.Record{
			ID: r.JobID.Bytes, Queue: r.Queue, Kind: r.Kind, State: driver.Dead, Priority: r.Priority, Attempt: r.Attempt,
			MaxAttempts: r.MaxAttempts, EnqueuedAt: r.EnqueuedAt, At: r.At, LastError: r.LastError,
		}
	}
	return all, err
}

func (a admin) listHistory(ctx context.Context, queue string, s driver.State, most int32) ([]driver.Record, error) {
	rows, err := a.d.q.ListHistory(ctx, a.d.db, pgdb.ListHistoryParams{
		Look: maxRead, Queue: queue, Outcome: int16(s-driver.Completed) + driver.OutcomeCompleted, Most: most,
	})
	all := make([]driver.Record, len(rows))
	for i, r := range rows {
		all[i] = driver.Record{
			ID: r.JobID.Bytes, Queue: r.Queue, Kind: r.Kind, State: s, Priority: r.Priority, Attempt: r.Attempt, EnqueuedAt: r.EnqueuedAt, At: r.At,
			LastError: r.Reason,
		}
	}
	return all, err
}

// findKept looks for a job day by day, along the key.
func (a admin) findKept(ctx context.Context, job driver.ID) (r driver.Record, found bool, err error) {
	span, err := a.d.q.HistorySpan(ctx, a.d.db)
	if err != nil || span.First == "" {
		return r, false, err
	}
	var days []string
	first, err := time.Parse(time.DateOnly, span.First)
	if err != nil {
		return r, false, err
	}
	last, err := time.Parse(time.DateOnly, span.Last)
	if err != nil {
		return r, false, err
	}
	for day := first; !day.After(last); day = day.AddDate(0, 0, 1) {
		days = append(days, day.Format(time.DateOnly))
	}
	j, err := a.d.q.HistoryRow(ctx, a.d.db, days, postgres.UUID(job))
	if noRows(err) {
		return r, false, nil
	}
	return driver.Record{
		ID: job, Queue: j.Queue, Kind: j.Kind, State: driver.Completed + driver.State(j.Outcome-driver.OutcomeCompleted), Priority: j.Priority,
		Attempt: j.Attempt, EnqueuedAt: j.EnqueuedAt, At: j.At, LastError: j.Reason, Payload: j.Payload,
	}, err == nil, err
}
