package mysqlqueue

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// List reads the first rows of where jobs in this state are, and then the jobs.
func (a admin) List(ctx context.Context, r *driver.ListRequest) ([]driver.Record, error) {
	on, name, s, n := a.d.on(a.d.db), []byte(r.Queue), r.State, int32(r.Max)
	var records []driver.Record
	var err error
	switch s {
	case driver.Ready:
		var rows []mysqldb.ListReadyRow
		rows, err = a.d.q.ListReady(ctx, on, name, n)
		for _, r := range rows {
			records = append(records, driver.Record{ID: idOf(r.JobID), At: at(r.AtUs)})
		}
	case driver.Scheduled, driver.Retrying:
		var rows []mysqldb.ListScheduledRow
		rows, err = a.d.q.ListScheduled(ctx, on, name, s == driver.Retrying, n)
		for _, r := range rows {
			records = append(records, driver.Record{ID: idOf(r.JobID), At: at(r.AtUs)})
		}
	case driver.Blocked:
		var rows [][]byte
		rows, err = a.d.q.ListBlocked(ctx, on, name, n)
		for _, r := range rows {
			records = append(records, driver.Record{ID: idOf(r)})
		}
	case driver.Claimed:
		var rows []mysqldb.ListClaimedRow
		rows, err = a.d.q.ListClaimed(ctx, on, name, n)
		for _, r := range rows {
			records = append(records, driver.Record{ID: idOf(r.JobID), At: at(r.AtUs), Worker: string(r.Worker)})
		}
	case driver.Dead:
		return a.listDead(ctx, r)
	default:
		return a.listHistory(ctx, name, s, n)
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
	rows, err := a.d.q.JobsOf(ctx, a.d.on(a.d.db), blobs(names))
	if err != nil {
		return nil, err
	}
	by := make(map[driver.ID]mysqldb.JobsOfRow, len(rows))
	for _, r := range rows {
		by[idOf(r.JobID)] = r
	}
	var all []driver.Record
	for _, p := range records {
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

// listDead reads along the index of the times.
func (a admin) listDead(ctx context.Context, r *driver.ListRequest) ([]driver.Record, error) {
	before := r.Before
	if before.IsZero() {
		before = always
	}
	rows, err := a.d.q.ListDead(ctx, a.d.on(a.d.db), mysqldb.ListDeadParams{
		Queue: []byte(r.Queue), BeforeUs: before.UnixMicro(), BeforeID: r.BeforeID[:], Limit: int32(r.Max),
	})
	all := make([]driver.Record, len(rows))
	for i, r := range rows {
		all[i] = driver.Record{
			ID: idOf(r.JobID), Queue: string(r.Queue), Kind: string(r.Kind), State: driver.Dead, Priority: r.Priority, Attempt: r.Attempt,
			MaxAttempts: r.MaxAttempts, EnqueuedAt: at(r.EnqueuedUs), At: at(r.AtUs), LastError: string(r.LastError),
		}
	}
	return all, err
}

func (a admin) listHistory(ctx context.Context, queue []byte, s driver.State, most int32) ([]driver.Record, error) {
	rows, err := a.d.q.ListHistory(ctx, a.d.on(a.d.db), queue, int64(s-driver.Completed)+int64(driver.OutcomeCompleted), most)
	all := make([]driver.Record, len(rows))
	for i, r := range rows {
		all[i] = driver.Record{
			ID: idOf(r.JobID), Queue: string(r.Queue), Kind: string(r.Kind), State: s, Priority: r.Priority, Attempt: r.Attempt,
			EnqueuedAt: at(r.EnqueuedUs), At: at(r.AtUs), LastError: r.Reason.String,
		}
	}
	return all, err
}

// findKept looks for a job day by day, the last first, along the key.
func (a admin) findKept(ctx context.Context, job driver.ID) (r driver.Record, found bool, err error) {
	span, err := a.d.q.HistorySpan(ctx, a.d.on(a.d.db))
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
		rows, err := a.d.q.HistoryRow(ctx, a.d.on(a.d.db), []byte(day.Format(time.DateOnly)), job[:])
		if err != nil {
			return r, false, err
		}
		if len(rows) == 0 {
			continue
		}
		j := rows[0]
		return driver.Record{
			ID: job, Queue: string(j.Queue), Kind: string(j.Kind), State: driver.Completed + driver.State(j.Outcome-driver.OutcomeCompleted),
			Priority: j.Priority, Attempt: j.Attempt, EnqueuedAt: at(j.EnqueuedUs), At: at(j.AtUs), LastError: j.Reason.String,
			Payload: []byte(j.Payload.String),
		}, true, nil
	}
	return r, false, nil
}
