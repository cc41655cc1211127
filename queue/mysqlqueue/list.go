package mysqlqueue

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// List reads the first rows of where jobs in this state are, and then the jobs.
func (d *database) List(ctx context.Context, queue string, s engine.State, most int) ([]engine.Record, error) {
	on, name, n := d.on(d.db), []byte(queue), int32(most)
	var places []engine.Record
	var err error
	switch s {
	case engine.Ready:
		var rows []mysqldb.ListReadyRow
		rows, err = d.q.ListReady(ctx, on, name, n)
		for _, r := range rows {
			places = append(places, engine.Record{ID: idOf(r.JobID), At: at(r.AtUs)})
		}
	case engine.Scheduled, engine.Retrying:
		var rows []mysqldb.ListScheduledRow
		rows, err = d.q.ListScheduled(ctx, on, name, s == engine.Retrying, n)
		for _, r := range rows {
			places = append(places, engine.Record{ID: idOf(r.JobID), At: at(r.AtUs)})
		}
	case engine.Blocked:
		var rows [][]byte
		rows, err = d.q.ListBlocked(ctx, on, name, n)
		for _, r := range rows {
			places = append(places, engine.Record{ID: idOf(r)})
		}
	case engine.Claimed:
		var rows []mysqldb.ListClaimedRow
		rows, err = d.q.ListClaimed(ctx, on, name, n)
		for _, r := range rows {
			places = append(places, engine.Record{ID: idOf(r.JobID), At: at(r.AtUs), Worker: string(r.Worker)})
		}
	case engine.Dead:
		return d.DeadBefore(ctx, queue, time.Time{}, engine.ID{}, most)
	default:
		return d.listHistory(ctx, name, s, n)
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
	rows, err := d.q.JobsOf(ctx, d.on(d.db), blobs(names))
	if err != nil {
		return nil, err
	}
	by := make(map[engine.ID]mysqldb.JobsOfRow, len(rows))
	for _, r := range rows {
		by[idOf(r.JobID)] = r
	}
	var all []engine.Record
	for _, p := range places {
		j, ok := by[p.ID]
		if !ok {
			continue
		}
		p.State, p.Queue, p.Kind, p.Priority, p.Attempt, p.MaxAttempts = s, string(j.Queue), string(j.Kind), j.Priority, j.Attempt, j.MaxAttempts
		p.EnqueuedAt, p.LastError = at(j.EnqueuedUs), j.LastError.String
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
	rows, err := d.q.ListDead(ctx, d.on(d.db), mysqldb.ListDeadParams{
		Queue: []byte(queue), BeforeUs: before.UnixMicro(), BeforeID: job[:], Limit: int32(most),
	})
	all := make([]engine.Record, len(rows))
	for i, r := range rows {
		all[i] = engine.Record{
			ID: idOf(r.JobID), Queue: string(r.Queue), Kind: string(r.Kind), State: engine.Dead, Priority: r.Priority, Attempt: r.Attempt,
			MaxAttempts: r.MaxAttempts, EnqueuedAt: at(r.EnqueuedUs), At: at(r.AtUs), LastError: string(r.LastError),
		}
	}
	return all, err
}

func (d *database) listHistory(ctx context.Context, queue []byte, s engine.State, most int32) ([]engine.Record, error) {
	rows, err := d.q.ListHistory(ctx, d.on(d.db), queue, int64(s-engine.Completed)+int64(engine.OutcomeCompleted), most)
	all := make([]engine.Record, len(rows))
	for i, r := range rows {
		all[i] = engine.Record{
			ID: idOf(r.JobID), Queue: string(r.Queue), Kind: string(r.Kind), State: s, Priority: r.Priority, Attempt: r.Attempt,
			EnqueuedAt: at(r.EnqueuedUs), At: at(r.AtUs), LastError: r.Reason.String,
		}
	}
	return all, err
}

// findKept looks for a job day by day, the last first, along the key.
func (d *database) findKept(ctx context.Context, job engine.ID) (r engine.Record, found bool, err error) {
	span, err := d.q.HistorySpan(ctx, d.on(d.db))
	if err != nil || len(raw(span.First)) == 0 {
		return r, false, err
	}
	first, err := time.Parse(time.DateOnly, string(raw(span.First)))
	if err != nil {
		return r, false, err
	}
	last, err := time.Parse(time.DateOnly, string(raw(span.Last)))
	if err != nil {
		return r, false, err
	}
	for day := last; !day.Before(first); day = day.AddDate(0, 0, -1) {
		rows, err := d.q.HistoryRow(ctx, d.on(d.db), []byte(day.Format(time.DateOnly)), job[:])
		if err != nil {
			return r, false, err
		}
		if len(rows) == 0 {
			continue
		}
		j := rows[0]
		return engine.Record{
			ID: job, Queue: string(j.Queue), Kind: string(j.Kind), State: engine.Completed + engine.State(j.Outcome-engine.OutcomeCompleted),
			Priority: j.Priority, Attempt: j.Attempt, EnqueuedAt: at(j.EnqueuedUs), At: at(j.AtUs), LastError: j.Reason.String,
			Payload: []byte(j.Payload.String),
		}, true, nil
	}
	return r, false, nil
}
