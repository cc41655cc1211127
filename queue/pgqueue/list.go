package pgqueue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// List reads the first rows of where jobs in this state are, and then the jobs.
func (d *database) List(ctx context.Context, queue string, s engine.State, most int) ([]engine.Record, error) {
	n := int32(most)
	var places []engine.Record
	var err error
	switch s {
	case engine.Ready:
		var rows []pgdb.ListReadyRow
		rows, err = d.q.ListReady(ctx, d.db, queue, n)
		for _, r := range rows {
			places = append(places, engine.Record{ID: r.JobID.Bytes, At: r.At})
		}
	case engine.Scheduled, engine.Retrying:
		var rows []pgdb.ListScheduledRow
		rows, err = d.q.ListScheduled(ctx, d.db, queue, s == engine.Retrying, n)
		for _, r := range rows {
			places = append(places, engine.Record{ID: r.JobID.Bytes, At: r.At})
		}
	case engine.Blocked:
		var rows []pgtype.UUID
		rows, err = d.q.ListBlocked(ctx, d.db, queue, n)
		for _, r := range rows {
			places = append(places, engine.Record{ID: r.Bytes})
		}
	case engine.Claimed:
		var rows []pgdb.ListClaimedRow
		rows, err = d.q.ListClaimed(ctx, d.db, queue, look, n)
		for _, r := range rows {
			places = append(places, engine.Record{ID: r.JobID.Bytes, At: r.At, Worker: r.Worker})
		}
	case engine.Dead:
		return d.DeadBefore(ctx, queue, time.Time{}, engine.ID{}, most)
	default:
		return d.listHistory(ctx, queue, s, n)
	}
	if err != nil || len(places) == 0 {
		return nil, err
	}
	return d.fill(ctx, s, places)
}

// fill reads the jobs of places; one that is gone by now is left out.
func (d *database) fill(ctx context.Context, s engine.State, places []engine.Record) ([]engine.Record, error) {
	names := make([]engine.ID, len(places))
	for i, p := range places {
		names[i] = p.ID
	}
	rows, err := d.q.JobsOf(ctx, d.db, postgres.UUIDs(names))
	if err != nil {
		return nil, err
	}
	by := make(map[engine.ID]pgdb.JobsOfRow, len(rows))
	for _, r := range rows {
		by[r.JobID.Bytes] = r
	}
	var all []engine.Record
	for _, p := range places {
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

// DeadBefore reads along the index of the times.
func (d *database) DeadBefore(ctx context.Context, queue string, before time.Time, job engine.ID, most int) ([]engine.Record, error) {
	if before.IsZero() {
		before = always
	}
	rows, err := d.q.ListDead(ctx, d.db, pgdb.ListDeadParams{Queue: queue, Before: before, BeforeID: postgres.UUID(job), Most: int32(most)})
	all := make([]engine.Record, len(rows))
	for i, r := range rows {
		all[i] = engine.Record{
			ID: r.JobID.Bytes, Queue: r.Queue, Kind: r.Kind, State: engine.Dead, Priority: r.Priority, Attempt: r.Attempt,
			MaxAttempts: r.MaxAttempts, EnqueuedAt: r.EnqueuedAt, At: r.At, LastError: r.LastError,
		}
	}
	return all, err
}

func (d *database) listHistory(ctx context.Context, queue string, s engine.State, most int32) ([]engine.Record, error) {
	rows, err := d.q.ListHistory(ctx, d.db, pgdb.ListHistoryParams{
		Look: look, Queue: queue, Outcome: int16(s-engine.Completed) + engine.OutcomeCompleted, Most: most,
	})
	all := make([]engine.Record, len(rows))
	for i, r := range rows {
		all[i] = engine.Record{
			ID: r.JobID.Bytes, Queue: r.Queue, Kind: r.Kind, State: s, Priority: r.Priority, Attempt: r.Attempt, EnqueuedAt: r.EnqueuedAt, At: r.At,
			LastError: r.Reason,
		}
	}
	return all, err
}

// findKept looks for a job day by day, along the key.
func (d *database) findKept(ctx context.Context, job engine.ID) (r engine.Record, found bool, err error) {
	span, err := d.q.HistorySpan(ctx, d.db)
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
	j, err := d.q.HistoryRow(ctx, d.db, days, postgres.UUID(job))
	if noRows(err) {
		return r, false, nil
	}
	return engine.Record{
		ID: job, Queue: j.Queue, Kind: j.Kind, State: engine.Completed + engine.State(j.Outcome-engine.OutcomeCompleted), Priority: j.Priority,
		Attempt: j.Attempt, EnqueuedAt: j.EnqueuedAt, At: j.At, LastError: j.Reason, Payload: j.Payload,
	}, err == nil, err
}
