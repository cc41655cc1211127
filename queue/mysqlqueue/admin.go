package mysqlqueue

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// admin is driver.Admin.
type admin struct{ d *database }

// SetPaused notes since when, or drops the note.
func (a admin) SetPaused(ctx context.Context, queue string, paused bool) error {
	set := a.d.q.ResumeQueue
	if paused {
		set = a.d.q.PauseQueue
	}
	return a.d.written(ctx, func(on mysqldb.DBTX) error { return set(ctx, on, []byte(queue)) })
}

// IsPaused reads the note.
func (a admin) IsPaused(ctx context.Context, queue string) (bool, error) {
	paused, err := a.d.q.PausedFor(ctx, a.d.on(a.d.db), []byte(queue))
	return len(paused) > 0, sqlerr.Unwritten(err)
}

// NextQueue looks at the ends of five indexes.
func (a admin) NextQueue(ctx context.Context, after string) (string, error) {
	next, err := a.d.q.NextQueue(ctx, a.d.on(a.d.db), mysqldb.NextQueueParams{After: []byte(after)})
	return string(raw(next)), err
}

// Count reads as much as it counts, and the first jobs of each priority.
func (a admin) Count(ctx context.Context, queue string, most int) (driver.Counts, error) {
	c := driver.Counts{Paused: -1}
	on, name := a.d.on(a.d.db), []byte(queue)
	for _, of := range []struct {
		into  *int
		count func(context.Context, mysqldb.DBTX, []byte, int32) (int64, error)
	}{{&c.Ready, a.d.q.CountReady}, {&c.Blocked, a.d.q.CountBlocked}, {&c.Dead, a.d.q.CountDead}} {
		n, err := of.count(ctx, on, name, int32(most))
		if err != nil {
			return c, err
		}
		*of.into = int(n)
	}
	for retry, into := range map[bool]*int{false: &c.Scheduled, true: &c.Retrying} {
		n, err := a.d.q.CountLater(ctx, on, name, retry, int32(most))
		if err != nil {
			return c, err
		}
		*into = int(n)
	}
	paused, err := a.d.q.PausedFor(ctx, on, name)
	if err != nil {
		return c, err
	}
	if len(paused) > 0 {
		c.Paused = micros(paused[0])
	}
	for after, more := int64(math.MinInt16)-1, c.Ready > 0; more; {
		some, err := a.d.q.OldestReady(ctx, on, name, after, driver.AgeStep)
		if err != nil {
			return c, err
		}
		c.Oldest, after, more = max(c.Oldest, micros(some.AgeUs)), some.Last, some.Jobs == driver.AgeStep
	}
	return c, nil
}

// Claimed reads as much as it counts.
func (a admin) Claimed(ctx context.Context, most int) (map[string]int, error) {
	rows, err := a.d.q.CountClaimed(ctx, a.d.on(a.d.db), int32(most))
	claimed := make(map[string]int, len(rows))
	for _, r := range rows {
		claimed[string(r.Queue)] = int(r.Jobs)
	}
	return claimed, err
}

// What keeps purge from what workers leave behind: MariaDB shows it to every user, MySQL to users
// with the privilege PROCESS.
var historyLength = []string{
	"SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_HISTORY_LIST_LENGTH' LIMIT 1",
	"SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len' LIMIT 1",
}

// Health asks the server's views, each of which may refuse to answer.
func (a admin) Health(ctx context.Context) (driver.Health, error) {
	h := driver.Health{DeadTuples: -1, OldestSnapshot: -1, HistoryLength: -1}
	for _, query := range historyLength {
		var n int64
		if err := a.d.db.QueryRowContext(ctx, query).Scan(&n); err == nil {
			h.HistoryLength = n
			break
		} else if ctx.Err() != nil {
			return h, sqlerr.Unwritten(err)
		}
	}
	return h, nil
}

// Find reads the job, and then, in one snapshot, where it is.
func (a admin) Find(ctx context.Context, job driver.ID) (r driver.Record, found bool, err error) {
	on := a.d.on(a.d.db)
	j, err := a.d.q.JobRow(ctx, on, job[:])
	if noRows(err) {
		return a.findEnded(ctx, job)
	}
	if err != nil {
		return r, false, err
	}
	r = driver.Record{
		ID: job, Queue: string(j.Queue), Kind: string(j.Kind), Priority: j.Priority, Attempt: j.Attempt, MaxAttempts: j.MaxAttempts,
		EnqueuedAt: at(j.EnqueuedUs), UniqueKey: j.UniqueKey.String, GroupKey: j.GroupKey.String, LastError: j.LastError.String, Payload: j.Payload,
	}
	positions, err := a.d.q.FindJob(ctx, on, mysqldb.FindJobParams{
		Queue: j.Queue, Priority: j.Priority, SinceUs: j.EnqueuedUs - time.Hour.Microseconds(), JobID: job[:], GroupKey: []byte(j.GroupKey.String),
	})
	if err != nil || len(positions) == 0 {
		return r, err == nil, err
	}
	p := positions[0]
	r.State, r.At, r.Seq, r.Admitted = driver.State(p.State), at(p.AtUs), p.Seq, p.Admitted != 0
	if r.State == driver.Claimed {
		copy(r.Member[:], raw(p.MemberID))
		r.Claim = idOf(raw(p.ClaimID))
		label, err := a.d.q.MemberLabel(ctx, on, r.Member[:])
		if err != nil && !noRows(err) {
			return r, false, err
		}
		r.Worker = string(label)
	}
	return r, true, nil
}

// findEnded looks among the dead, and in what is kept.
func (a admin) findEnded(ctx context.Context, job driver.ID) (r driver.Record, found bool, err error) {
	j, err := a.d.q.DeadRow(ctx, a.d.on(a.d.db), job[:])
	if noRows(err) {
		return a.findKept(ctx, job)
	}
	if err != nil {
		return r, false, err
	}
	return driver.Record{
		ID: job, Queue: string(j.Queue), Kind: string(j.Kind), State: driver.Dead, Priority: j.Priority, Attempt: j.Attempt,
		MaxAttempts: j.MaxAttempts, EnqueuedAt: at(j.EnqueuedUs), At: at(j.AtUs), UniqueKey: j.UniqueKey.String, GroupKey: j.GroupKey.String,
		LastError: string(j.LastError), Payload: j.Payload,
	}, true, nil
}

// AnyDead counts up to one.
func (a admin) AnyDead(ctx context.Context, queue string, age time.Duration) (bool, error) {
	n, err := a.d.q.AnyDead(ctx, a.d.on(a.d.db), []byte(queue), -age.Microseconds())
	return n > 0, err
}

// RetryJob is one transaction, which waits neither for the rows of dead jobs nor for that of a
// unique key.
func (a admin) RetryJob(ctx context.Context, jobs []driver.ID) (revived, locked int, err error) {
	err = a.d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		dead, err := a.d.q.LockDead(ctx, on, blobs(jobs))
		if err != nil {
			return false, err
		}
		locked = 0
		if len(dead) < len(jobs) {
			all, err := a.d.q.DeadAmong(ctx, on, blobs(jobs))
			if err != nil {
				return false, err
			}
			locked = max(int(all)-len(dead), 0)
		}
		var ours [][]byte
		for _, j := range dead {
			free := true
			if j.UniqueKey.Valid {
				if free, err = a.takeFree(ctx, on, j.Queue, []byte(j.UniqueKey.String), j.JobID); err != nil {
					return false, err
				}
			}
			if free {
				ours = append(ours, j.JobID)
			}
		}
		revived = len(ours)
		if revived == 0 {
			return false, nil
		}
		for _, step := range []func(context.Context, mysqldb.DBTX, [][]byte) error{a.d.q.RetryJobs, a.d.q.RetryReady, a.d.q.RetryLater} {
			if err := step(ctx, on, ours); err != nil {
				return false, err
			}
		}
		_, err = byKeys(ctx, on, mysqldb.PurgeDead, ours)
		return true, err
	})
	if err != nil {
		return 0, 0, err
	}
	return revived, locked, nil
}

// takeFree takes a unique key that no job has.
func (a admin) takeFree(ctx context.Context, on mysqldb.DBTX, queue, key, job []byte) (bool, error) {
	holders, err := a.d.q.UniqueHolder(ctx, on, queue, key)
	if err != nil || len(holders) > 0 {
		return false, err
	}
	n, err := a.d.q.TakeUniqueKey(ctx, on, queue, key, job)
	return n > 0, err
}

// RequestCancel is one statement.
func (a admin) RequestCancel(ctx context.Context, of member.ID, claim, job driver.ID) (held bool, err error) {
	err = a.d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		n, err := a.d.q.RequestCancel(ctx, on, of[:], claim[:], job[:])
		held = n > 0
		return held, err
	})
	return held, err
}

func noRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func at(us int64) time.Time { return time.UnixMicro(us).UTC() }

// raw is a binary value of an expression, which drivers return as they like.
func raw(v any) []byte {
	switch v := v.(type) {
	case []byte:
		return v
	case string:
		return []byte(v)
	}
	return nil
}
