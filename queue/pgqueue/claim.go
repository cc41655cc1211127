package pgqueue

import (
	"math"
	"time"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/queue/internal/driver"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// spansOf is what of the ready jobs a claim looks at, one after the other: from a priority and a
// time to the end of a priority.
type spansOf struct {
	priorities []int16
	times      []time.Time
	lasts      []int16
}

// spans are all jobs, but for what stands before the marks.
func spans(from []driver.ReadyCursor) (s spansOf) {
	next := int16(math.MinInt16) // the first priority that is not covered yet
	for _, m := range from {
		if m.Priority > next {
			s.add(next, time.Time{}, m.Priority-1)
		}
		s.add(m.Priority, m.ReadyAt, m.Priority)
		if m.Priority == math.MaxInt16 {
			return s
		}
		next = m.Priority + 1
	}
	s.add(next, time.Time{}, math.MaxInt16)
	return s
}

func (s *spansOf) add(priority int16, at time.Time, last int16) {
	s.priorities, s.times, s.lasts = append(s.priorities, priority), append(s.times, at), append(s.lasts, last)
}

// jobs reads what was claimed, and counts the rows that are of no job. There are few kinds, so that
// each is kept as a string once. A time that is infinite is read as the zero time.
func jobs(rows pgx.Rows, ask *driver.ClaimRequest) (all []driver.Job, void int, err error) {
	kinds := make(map[string]string)
	var job pgtype.UUID
	var kind pgtype.DriverBytes
	var enqueued, ready pgtype.Timestamptz
	for rows.Next() {
		if all == nil {
			all = make([]driver.Job, 0, ask.Max)
		}
		var j driver.Job
		if err := rows.Scan(&job, &kind, &j.Priority, &j.Attempt, &j.MaxAttempts, &enqueued, &ready, &j.Bytes, &j.Payload, &j.Keyed, &j.Recorded); err != nil {
			return nil, 0, err
		}
		if kind == nil {
			void++
			continue
		}
		j.EnqueuedAt, j.ReadyAt = enqueued.Time, ready.Time
		known, ok := kinds[string(kind)]
		if !ok {
			known = string(kind)
			kinds[known] = known
		}
		j.ID, j.Kind, j.Unread = job.Bytes, known, j.Bytes > ask.Inline
		all = append(all, j)
	}
	return all, void, rows.Err()
}

// queueTake claims a job that waits, if it is still where it was seen.
func (d *database) queueTake(batch *pgx.Batch, x *driver.SyncBatch) {
	t := x.Take
	if t == nil {
		return
	}
	j := &t.Job
	me, claim, job := postgres.UUID(x.Member), postgres.UUID(t.Claim), postgres.UUID(j.ID)
	switch j.State {
	case driver.Ready:
		batch.Queue(d.SQL(pgdb.TakeReadyJob), claim, me, j.Queue, j.Priority, j.At, job)
	case driver.Scheduled, driver.Retrying:
		batch.Queue(d.SQL(pgdb.TakeScheduledJob), claim, me, j.At, job, j.Admitted)
	case driver.Blocked:
		batch.Queue(d.SQL(pgdb.LockGroups), []pgtype.UUID{job})
		batch.Queue(d.SQL(pgdb.TakeBlockedJob), claim, me, j.Queue, j.GroupKey, j.Seq, job)
	}
}
