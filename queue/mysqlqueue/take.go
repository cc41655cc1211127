package mysqlqueue

import (
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// take claims a job that waits, where it is still where it was seen.
func (e *exchange) take(x *engine.Exchange, _ *engine.Exchanged) error {
	t := x.Take
	if t == nil {
		return nil
	}
	j := &t.Job
	queue, group := []byte(j.Queue), []byte(j.GroupKey)
	if j.GroupKey != "" {
		if _, err := e.d.q.LockKey(e.ctx, e.on, queue, group); err != nil {
			return err
		}
	}
	var n int64
	var err error
	admit := false
	switch j.State {
	case engine.Ready:
		n, err = e.d.q.TakeReadyJob(e.ctx, e.on, mysqldb.TakeReadyJobParams{Queue: queue, Priority: j.Priority, AtUs: j.At.UnixMicro(), JobID: j.ID[:]})
	case engine.Scheduled, engine.Retrying:
		if n, admit, err = e.unschedule(j); err != nil {
			return err
		}
	case engine.Blocked:
		admit = true
		n, err = e.d.q.TakeBlockedJob(e.ctx, e.on, mysqldb.TakeBlockedJobParams{Queue: queue, GroupKey: group, Seq: j.Seq, JobID: j.ID[:]})
	}
	if err != nil || n == 0 {
		return err
	}
	if admit { // for as long as this takes
		if err := e.d.q.AdmitOne(e.ctx, e.on, queue, group); err != nil {
			return err
		}
	}
	return e.d.q.ClaimOne(e.ctx, e.on, mysqldb.ClaimOneParams{MemberID: e.me[:], ClaimID: t.Claim[:], JobID: j.ID[:], Queue: queue, Priority: j.Priority})
}

// unschedule deletes a job for later, and tells whether it has yet to be admitted by its group.
func (e *exchange) unschedule(j *engine.Record) (n int64, admit bool, err error) {
	groups, err := e.d.q.ScheduledGroup(e.ctx, e.on, j.At.UnixMicro(), j.ID[:])
	if err != nil || len(groups) == 0 {
		return 0, false, err
	}
	n, err = e.d.q.TakeScheduledJob(e.ctx, e.on, j.At.UnixMicro(), j.ID[:])
	return n, groups[0].Valid, err
}
