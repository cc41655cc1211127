package mysqlqueue

import (
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// take claims a job that waits, if it is still where it was seen.
func (e *exchange) take(x *engine.Exchange, _ *engine.Exchanged) error {
	t := x.Take
	if t == nil {
		return nil
	}
	j := &t.Job
	queue, group := []byte(j.Queue), []byte(j.GroupKey)
	var n int64
	var err error
	switch j.State {
	case engine.Ready:
		n, err = e.d.q.TakeReadyJob(e.ctx, e.on, mysqldb.TakeReadyJobParams{Queue: queue, Priority: j.Priority, AtUs: j.At.UnixMicro(), JobID: j.ID[:]})
	case engine.Scheduled, engine.Retrying:
		n, err = e.d.q.TakeScheduledJob(e.ctx, e.on, j.At.UnixMicro(), j.ID[:], oneIf(j.Admitted))
	case engine.Blocked:
		if err = lockNow(e.ctx, e.on, mysqldb.LockGroupsNoWait, []key{{j.Queue, j.GroupKey}}); err == nil {
			n, err = e.d.q.TakeBlockedJob(e.ctx, e.on, mysqldb.TakeBlockedJobParams{Queue: queue, GroupKey: group, Seq: j.Seq, JobID: j.ID[:]})
		}
	}
	if err != nil || n == 0 {
		return err
	}
	return e.d.q.ClaimOne(e.ctx, e.on, mysqldb.ClaimOneParams{MemberID: e.me[:], ClaimID: t.Claim[:], JobID: j.ID[:], Queue: queue, Priority: j.Priority})
}

func oneIf(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
