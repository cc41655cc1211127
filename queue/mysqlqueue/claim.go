package mysqlqueue

import (
	"math"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

func (e *syncTx) claim(x *driver.SyncBatch, got *driver.SyncResult) error {
	a := x.Claim
	if a == nil {
		return nil
	}
	priority, us := cursorRange(a.From)
	passed := [][]byte{make([]byte, len(driver.ID{}))} // of no job: the list must not be empty
	for _, id := range a.Not {
		passed = append(passed, id[:])
	}
	n, err := e.d.q.ClaimJobs(e.ctx, e.on, mysqldb.ClaimJobsParams{
		MemberID: e.me[:], ClaimID: a.Claim[:], Queue: []byte(a.Queue), Passed: passed, Beat: a.Heartbeat, Limit: int32(a.Max), Priority: priority, FromUs: us,
	})
	if err != nil || n == 0 {
		return err
	}
	e.wrote = true
	if err := e.d.q.TakeReady(e.ctx, e.on, e.me[:], a.Claim[:]); err != nil {
		return err
	}
	claimed, err := e.d.q.ClaimedJobs(e.ctx, e.on, int64(a.Inline), e.me[:], a.Claim[:])
	if err != nil {
		return err
	}
	if got.Void = int(n) - len(claimed); got.Void > 0 {
		if err := e.d.q.DropVoid(e.ctx, e.on, e.me[:], a.Claim[:]); err != nil {
			return err
		}
	}
	got.Jobs = make([]driver.Job, len(claimed))
	kinds := make(map[string]string)
	for i, j := range claimed {
		kind, ok := kinds[string(j.Kind)]
		if !ok {
			kind = string(j.Kind)
			kinds[kind] = kind
		}
		payload, here := j.Payload.([]byte)
		got.Jobs[i] = driver.Job{
			ID: idOf(j.JobID), Kind: kind, Priority: j.Priority, Attempt: j.Attempt, MaxAttempts: j.MaxAttempts,
			EnqueuedAt: time.UnixMicro(j.EnqueuedUs).UTC(), ReadyAt: time.UnixMicro(j.ReadyUs).UTC(), Payload: payload,
			Bytes: int(j.Bytes), Unread: !here, Keyed: j.Keyed != 0, Recorded: j.Recorded != 0,
		}
	}
	return nil
}

// cursorRange is from where on a claim looks at the jobs of one priority, the last one that there
// is a mark for, as a backlog is there; the others it looks at whole. More of them would make
// statements of many shapes.
func cursorRange(from []driver.ReadyCursor) (priority int16, us int64) {
	if len(from) == 0 {
		return math.MinInt16, 0
	}
	last := from[len(from)-1]
	return last.Priority, last.ReadyAt.UnixMicro()
}

// take claims a job that waits, if it is still where it was seen.
func (e *syncTx) take(x *driver.SyncBatch, _ *driver.SyncResult) error {
	t := x.Take
	if t == nil {
		return nil
	}
	j := &t.Job
	queue, group := []byte(j.Queue), []byte(j.GroupKey)
	var n int64
	var err error
	switch j.State {
	case driver.Ready:
		n, err = e.d.q.TakeReadyJob(e.ctx, e.on, mysqldb.TakeReadyJobParams{Queue: queue, Priority: j.Priority, AtUs: j.At.UnixMicro(), JobID: j.ID[:]})
	case driver.Scheduled, driver.Retrying:
		n, err = e.d.q.TakeScheduledJob(e.ctx, e.on, j.At.UnixMicro(), j.ID[:], oneIf(j.Admitted))
	case driver.Blocked:
		lock := mysqldb.LockGroupsNoWait
		if x.WaitsForRows {
			lock = mysqldb.LockGroups
		}
		if err = lockRows(e.ctx, e.on, lock, []key{{j.Queue, j.GroupKey}}); err == nil {
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
