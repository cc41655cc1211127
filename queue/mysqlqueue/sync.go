package mysqlqueue

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// errSomeLost: not all jobs that were to end are the member's any more.
var errSomeLost = errors.New("mysqlqueue: some claims were taken away")

// errSomeCancelled: others want jobs cancelled that were to be rescheduled or discarded.
var errSomeCancelled = errors.New("mysqlqueue: some jobs are to be cancelled")

// Sync is one transaction, of a statement for each claim that jobs are of, one for each way in
// which they ended, and three that claim. The rows of claims are deleted first, without looking; if
// some are missing, all is rolled back, and done again for those that a look has found. If another
// transaction has the row of a key locked, it is rolled back, too, and done again for BriefWait:
// the server counts a wait in seconds.
func (d *database) Sync(ctx context.Context, x *driver.SyncBatch) (got driver.SyncResult, err error) {
	for pause, waited := time.Millisecond, time.Duration(0); ; pause, waited = 2*pause, waited+pause {
		sent := time.Now()
		last := waited >= driver.BriefWait
		got, err = d.sync(ctx, x, false, last)
		if errors.Is(err, errSomeLost) {
			got, err = d.sync(ctx, x, true, last)
		}
		if !mysql.IsLocked(err) || last || time.Since(sent) >= mysql.LockWait || pace.Sleep(ctx, pause) != nil {
			break
		}
	}
	switch {
	case errors.Is(err, errSomeCancelled):
		return driver.SyncResult{Cancelled: got.Cancelled}, nil
	case err != nil:
		return driver.SyncResult{}, err
	}
	return got, nil
}

func (d *database) sync(ctx context.Context, x *driver.SyncBatch, look, names bool) (got driver.SyncResult, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		e := &syncTx{d: d, ctx: ctx, on: on, me: x.Member, claims: look, names: names}
		for _, step := range []func(*driver.SyncBatch, *driver.SyncResult) error{e.take, e.finish, e.postpone, e.discard, e.lock, e.free, e.claim} {
			if err := step(x, &got); err != nil {
				return false, err
			}
		}
		return e.wrote, nil
	})
	return got, err
}

// syncTx is one transaction.
type syncTx struct {
	d      *database
	ctx    context.Context
	on     mysqldb.DBTX
	me     member.ID
	claims bool
	names  bool // the jobs whose keys are locked
	wrote  bool
	freed  freed // the keys of jobs that have ended
}

// whole are claims of which all that is left is finished: that all rows go is as good a proof as
// that each does.
func whole(x *driver.SyncBatch) map[driver.ID]bool {
	all := make(map[driver.ID]bool, len(x.Closed))
	for _, c := range x.Closed {
		all[c] = true
	}
	for i := range x.Rescheduled {
		delete(all, x.Rescheduled[i].Claim)
	}
	for i := range x.Discarded {
		delete(all, x.Discarded[i].Claim)
	}
	return all
}

// fence deletes the rows of jobs from their claims, and returns those that were there, in order.
func (e *syncTx) fence(positions []driver.Position, whole map[driver.ID]bool) (ours [][]byte, err error) {
	by := make(map[driver.ID][][]byte)
	var claims []driver.ID
	for i := range positions {
		p := &positions[i]
		if by[p.Claim] == nil {
			claims = append(claims, p.Claim)
		}
		by[p.Claim] = append(by[p.Claim], p.Job[:])
	}
	slices.SortFunc(claims, func(a, b driver.ID) int { return bytes.Compare(a[:], b[:]) })
	for _, claim := range claims {
		jobs := by[claim]
		slices.SortFunc(jobs, bytes.Compare)
		if e.claims {
			if jobs, err = lockPlaces(e.ctx, e.on, jobs, e.me[:], claim[:]); err != nil {
				return nil, err
			}
			if len(jobs) == 0 {
				continue
			}
		}
		var n int64
		if whole[claim] && !e.claims {
			n, err = e.d.q.EndClaim(e.ctx, e.on, e.me[:], claim[:])
		} else {
			n, err = byKeys(e.ctx, e.on, mysqldb.EndClaimed, jobs, e.me[:], claim[:])
		}
		if err != nil {
			return nil, err
		}
		if n != int64(len(jobs)) {
			return nil, errSomeLost
		}
		e.wrote = true
		ours = append(ours, jobs...)
	}
	slices.SortFunc(ours, bytes.Compare)
	return ours, nil
}

// give is fence for jobs that are to be rescheduled or discarded. It refuses those that others want
// cancelled.
func (e *syncTx) give(positions []driver.Position, got *driver.SyncResult) (ours [][]byte, err error) {
	ours, err = e.fence(positions, nil)
	if err != nil || len(ours) == 0 {
		return nil, err
	}
	if got.Cancelled, err = e.cancelsAmong(ours); err == nil && len(got.Cancelled) > 0 {
		err = errSomeCancelled
	}
	return ours, err
}

func (e *syncTx) finish(x *driver.SyncBatch, got *driver.SyncResult) error {
	if len(x.Completed) == 0 {
		return nil
	}
	ours, err := e.fence(x.Completed, whole(x))
	if err != nil || len(ours) == 0 {
		return err
	}
	if err := e.noteKeys(x, x.Completed, ours); err != nil {
		return err
	}
	if err := e.keep(x, ours); err != nil {
		return err
	}
	n, err := byKeys(e.ctx, e.on, mysqldb.FinishJobs, ours)
	got.Completed = int(n)
	return err
}

func (e *syncTx) postpone(x *driver.SyncBatch, got *driver.SyncResult) error {
	if len(x.Rescheduled) == 0 {
		return nil
	}
	positions := make([]driver.Position, len(x.Rescheduled))
	for i, d := range x.Rescheduled {
		positions[i] = d.Position
	}
	ours, err := e.give(positions, got)
	if err != nil || len(ours) == 0 {
		return err
	}
	var notes, later, since []any
	var again [][]byte
	for i := range x.Rescheduled {
		d := &x.Rescheduled[i]
		if !has(ours, d.Job) {
			continue
		}
		if d.Failure != "" || d.Records {
			records := int64(0)
			if d.Records {
				records = 1
			}
			notes = append(notes, d.Job[:], int64(d.Attempt), []byte(d.Failure), records)
		}
		switch {
		case d.Delay > 0:
			later = append(later, d.Job[:], d.DelayMicros(), d.Failure != "")
		case d.ReadyAt.IsZero():
			again = append(again, d.Job[:])
		default:
			since = append(since, d.Job[:], d.ReadyAt.UnixMicro())
		}
	}
	if _, err := mysql.ExecAll(e.ctx, e.on, mysqldb.NoteAttempts, maxReads, notes); err != nil {
		return err
	}
	n, err := mysql.ExecAll(e.ctx, e.on, mysqldb.RescheduleJobs, maxReads, later)
	if err == nil {
		var m int64
		m, err = mysql.ExecAll(e.ctx, e.on, mysqldb.ReadyAgainSince, maxReads, since)
		n += m
	}
	if err == nil && len(again) > 0 {
		var m int64
		m, err = e.d.q.ReadyAgain(e.ctx, e.on, again)
		n += m
	}
	got.Rescheduled = int(n)
	return err
}

func (e *syncTx) discard(x *driver.SyncBatch, got *driver.SyncResult) error {
	if len(x.Discarded) == 0 {
		return nil
	}
	positions := make([]driver.Position, len(x.Discarded))
	for i, b := range x.Discarded {
		positions[i] = b.Position
	}
	ours, err := e.give(positions, got)
	if err != nil || len(ours) == 0 {
		return err
	}
	if err := e.noteKeys(x, positions, ours); err != nil {
		return err
	}
	var args []any
	for i := range x.Discarded {
		if b := &x.Discarded[i]; has(ours, b.Job) {
			args = append(args, b.Job[:], int64(b.Attempt), []byte(b.Failure))
		}
	}
	n, err := mysql.ExecAll(e.ctx, e.on, mysqldb.DiscardJobs, maxReads, args)
	if err == nil {
		err = e.keepDead(x, ours)
	}
	if err == nil {
		_, err = byKeys(e.ctx, e.on, mysqldb.FinishJobs, ours)
	}
	got.Discarded = int(n)
	return err
}
