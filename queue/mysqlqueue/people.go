package mysqlqueue

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// Pause notes since when.
func (d *database) Pause(ctx context.Context, queue string) error {
	return d.written(ctx, func(on mysqldb.DBTX) error { return d.q.PauseQueue(ctx, on, []byte(queue)) })
}

// Resume drops the note.
func (d *database) Resume(ctx context.Context, queue string) error {
	return d.written(ctx, func(on mysqldb.DBTX) error { return d.q.ResumeQueue(ctx, on, []byte(queue)) })
}

// IsPaused reads the note.
func (d *database) IsPaused(ctx context.Context, queue string) (bool, error) {
	paused, err := d.q.PausedFor(ctx, d.on(d.db), []byte(queue))
	return len(paused) > 0, sqlerr.Unwritten(err)
}

// NextQueue looks at the ends of five indexes.
func (d *database) NextQueue(ctx context.Context, after string) (string, error) {
	next, err := d.q.NextQueue(ctx, d.on(d.db), mysqldb.NextQueueParams{After: []byte(after)})
	return string(raw(next)), err
}

// Count reads as much as it counts, and the first jobs of each priority.
func (d *database) Count(ctx context.Context, queue string, most int) (engine.Counts, error) {
	c := engine.Counts{Paused: -1}
	on, name := d.on(d.db), []byte(queue)
	for _, of := range []struct {
		into  *int
		count func(context.Context, mysqldb.DBTX, []byte, int32) (int64, error)
	}{{&c.Ready, d.q.CountReady}, {&c.Blocked, d.q.CountBlocked}, {&c.Dead, d.q.CountDead}} {
		n, err := of.count(ctx, on, name, int32(most))
		if err != nil {
			return c, err
		}
		*of.into = int(n)
	}
	for retry, into := range map[bool]*int{false: &c.Scheduled, true: &c.Retrying} {
		n, err := d.q.CountLater(ctx, on, name, retry, int32(most))
		if err != nil {
			return c, err
		}
		*into = int(n)
	}
	paused, err := d.q.PausedFor(ctx, on, name)
	if err != nil {
		return c, err
	}
	if len(paused) > 0 {
		c.Paused = micros(paused[0])
	}
	for after, more := int64(math.MinInt16)-1, c.Ready > 0; more; {
		some, err := d.q.OldestReady(ctx, on, name, after, engine.AgeStep)
		if err != nil {
			return c, err
		}
		c.Oldest, after, more = max(c.Oldest, micros(some.AgeUs)), some.Last, some.Jobs == engine.AgeStep
	}
	return c, nil
}

// Claimed reads as much as it counts.
func (d *database) Claimed(ctx context.Context, most int) (map[string]int, error) {
	rows, err := d.q.CountClaimed(ctx, d.on(d.db), int32(most))
	claimed := make(map[string]int, len(rows))
	for _, r := range rows {
		claimed[string(r.Queue)] = int(r.Jobs)
	}
	return claimed, err
}

// What keeps purge from what workers leave behind: MariaDB tells everybody, MySQL those who have the privilege PROCESS.
var historyLength = []string{
	"SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_HISTORY_LIST_LENGTH' LIMIT 1",
	"SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len' LIMIT 1",
}

// Health asks the server's views, each of which may refuse to answer.
func (d *database) Health(ctx context.Context) (engine.Health, error) {
	h := engine.Health{DeadTuples: -1, OldestSnapshot: -1, HistoryLength: -1}
	for _, query := range historyLength {
		var n int64
		if err := d.db.QueryRowContext(ctx, query).Scan(&n); err == nil {
			h.HistoryLength = n
			break
		} else if ctx.Err() != nil {
			return h, sqlerr.Unwritten(err)
		}
	}
	return h, nil
}

// Find reads the job, and then, in one snapshot, where it is.
func (d *database) Find(ctx context.Context, job engine.ID) (r engine.Record, found bool, err error) {
	on := d.on(d.db)
	j, err := d.q.JobRow(ctx, on, job[:])
	if noRows(err) {
		return d.findEnded(ctx, job)
	}
	if err != nil {
		return r, false, err
	}
	r = engine.Record{
		ID: job, Queue: string(j.Queue), Kind: string(j.Kind), Priority: j.Priority, Attempt: j.Attempt, MaxAttempts: j.MaxAttempts,
		EnqueuedAt: at(j.EnqueuedUs), UniqueKey: j.UniqueKey.String, GroupKey: j.GroupKey.String, LastError: j.LastError.String, Payload: j.Payload,
	}
	places, err := d.q.FindJob(ctx, on, mysqldb.FindJobParams{
		Queue: j.Queue, Priority: j.Priority, SinceUs: j.EnqueuedUs - time.Hour.Microseconds(), JobID: job[:], GroupKey: []byte(j.GroupKey.String),
	})
	if err != nil || len(places) == 0 {
		return r, err == nil, err
	}
	p := places[0]
	r.State, r.At, r.Seq, r.Admitted = engine.State(p.State), at(p.AtUs), p.Seq, p.Admitted != 0
	if r.State == engine.Claimed {
		copy(r.Member[:], raw(p.MemberID))
		r.Claim = idOf(raw(p.ClaimID))
		label, err := d.q.MemberLabel(ctx, on, r.Member[:])
		if err != nil && !noRows(err) {
			return r, false, err
		}
		r.Worker = string(label)
	}
	return r, true, nil
}

// findEnded looks among the dead, and in what is kept.
func (d *database) findEnded(ctx context.Context, job engine.ID) (r engine.Record, found bool, err error) {
	j, err := d.q.DeadRow(ctx, d.on(d.db), job[:])
	if noRows(err) {
		return d.findKept(ctx, job)
	}
	if err != nil {
		return r, false, err
	}
	return engine.Record{
		ID: job, Queue: string(j.Queue), Kind: string(j.Kind), State: engine.Dead, Priority: j.Priority, Attempt: j.Attempt,
		MaxAttempts: j.MaxAttempts, EnqueuedAt: at(j.EnqueuedUs), At: at(j.AtUs), UniqueKey: j.UniqueKey.String, GroupKey: j.GroupKey.String,
		LastError: string(j.LastError), Payload: j.Payload,
	}, true, nil
}

// Revive is one transaction, which does not wait for the row of a unique key.
func (d *database) Revive(ctx context.Context, jobs []engine.ID) (revived int, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		dead, err := d.q.LockDead(ctx, on, blobs(jobs))
		if err != nil {
			return false, err
		}
		var ours [][]byte
		for _, j := range dead {
			free := true
			if j.UniqueKey.Valid {
				if free, err = d.takeFree(ctx, on, j.Queue, []byte(j.UniqueKey.String), j.JobID); err != nil {
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
		for _, step := range []func(context.Context, mysqldb.DBTX, [][]byte) error{d.q.ReviveJobs, d.q.ReviveReady, d.q.ReviveLater} {
			if err := step(ctx, on, ours); err != nil {
				return false, err
			}
		}
		_, err = byKeys(ctx, on, mysqldb.PurgeDead, ours)
		return true, err
	})
	if err != nil {
		return 0, err
	}
	return revived, nil
}

// takeFree takes a unique key that no job has.
func (d *database) takeFree(ctx context.Context, on mysqldb.DBTX, queue, key, job []byte) (bool, error) {
	holders, err := d.q.UniqueHolder(ctx, on, queue, key)
	if err != nil || len(holders) > 0 {
		return false, err
	}
	n, err := d.q.TakeUniqueKey(ctx, on, queue, key, job)
	return n > 0, err
}

// IsLocked tells that another transaction had a row locked.
func (*database) IsLocked(err error) bool { return mysql.IsLocked(err) }

// Forget deletes the row.
func (d *database) Forget(ctx context.Context, job engine.ID) (found bool, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		n, err := d.q.ForgetDead(ctx, on, job[:])
		found = n > 0
		return found, err
	})
	return found, err
}

// Purge reads along the index of the times, without locks, and deletes by the key.
func (d *database) Purge(ctx context.Context, queue string, age time.Duration, most int) (int, error) {
	old, err := d.q.OldDead(ctx, d.on(d.db), []byte(queue), -age.Microseconds(), int32(most))
	if err != nil || len(old) == 0 {
		return 0, err
	}
	var n int64
	err = d.written(ctx, func(on mysqldb.DBTX) (err error) {
		n, err = byKeys(ctx, on, mysqldb.PurgeDead, old)
		return err
	})
	return int(n), err
}

// AskToCancel is one statement.
func (d *database) AskToCancel(ctx context.Context, m member.ID, claim, job engine.ID) (held bool, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		n, err := d.q.AskToCancel(ctx, on, m[:], claim[:], job[:])
		held = n > 0
		return held, err
	})
	return held, err
}

// Cancels goes along the key.
func (d *database) Cancels(ctx context.Context, m member.ID, after engine.ID) ([]engine.Request, error) {
	found, err := d.q.CancelsOf(ctx, d.on(d.db), m[:], after[:])
	requests := make([]engine.Request, len(found))
	for i, f := range found {
		requests[i] = engine.Request{Job: idOf(f.JobID), Stands: f.Stands > 0}
	}
	return requests, sqlerr.Unwritten(err)
}

// DropCancels deletes rows by their key.
func (d *database) DropCancels(ctx context.Context, m member.ID, jobs []engine.ID) error {
	var all []any
	for _, job := range jobs {
		all = append(all, m[:], job[:])
	}
	return d.dropCancels(ctx, all)
}

func (d *database) dropCancels(ctx context.Context, all []any) error {
	return d.written(ctx, func(on mysqldb.DBTX) error {
		_, err := mysql.ExecAll(ctx, on, mysqldb.DropCancels, mostAsks, all)
		return err
	})
}

// PruneCancels reads without locks, and deletes by the key.
func (d *database) PruneCancels(ctx context.Context) error {
	old, err := d.q.OldCancels(ctx, d.on(d.db))
	if err != nil {
		return sqlerr.Unwritten(err)
	}
	var all []any
	for _, o := range old {
		all = append(all, o.MemberID, o.JobID)
	}
	if len(all) == 0 {
		return nil
	}
	return d.dropCancels(ctx, all)
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
