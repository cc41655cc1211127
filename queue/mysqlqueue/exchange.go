package mysqlqueue

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// errSomeLost: not all jobs that were to end are the member's any more.
var errSomeLost = errors.New("mysqlqueue: some claims were taken away")

// errSomeCancelled: others want jobs cancelled that were to be deferred or buried.
var errSomeCancelled = errors.New("mysqlqueue: some jobs are to be cancelled")

// Exchange is one transaction, of a statement for each claim that jobs are of, one for each way in which they ended, and three that
// claim. The rows of claims are deleted first, without looking; if some are missing, all is rolled back, and done again for those
// that a look has found. If another transaction has the row of a key locked, it is rolled back, too, and done again for x.RowWait: the
// server counts a wait in seconds.
func (d *database) Exchange(ctx context.Context, x *engine.Exchange) (got engine.Exchanged, err error) {
	for pause, waited := time.Millisecond, time.Duration(0); ; pause, waited = 2*pause, waited+pause {
		sent := time.Now()
		got, err = d.exchange(ctx, x, false)
		if errors.Is(err, errSomeLost) {
			got, err = d.exchange(ctx, x, true)
		}
		if !mysql.IsLocked(err) || waited >= x.RowWait() || time.Since(sent) >= mysql.LockWait || pace.Sleep(ctx, pause) != nil {
			break
		}
	}
	switch {
	case errors.Is(err, errSomeCancelled):
		return engine.Exchanged{Cancelled: got.Cancelled}, nil
	case err != nil:
		return engine.Exchanged{}, err
	}
	return got, nil
}

func (d *database) exchange(ctx context.Context, x *engine.Exchange, look bool) (got engine.Exchanged, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		e := &exchange{d: d, ctx: ctx, on: on, me: x.Member, look: look}
		for _, step := range []func(*engine.Exchange, *engine.Exchanged) error{e.take, e.finish, e.postpone, e.bury, e.lock, e.free, e.claim} {
			if err := step(x, &got); err != nil {
				return false, err
			}
		}
		return e.wrote, nil
	})
	return got, err
}

// exchange is one transaction.
type exchange struct {
	d     *database
	ctx   context.Context
	on    mysqldb.DBTX
	me    member.ID
	look  bool
	wrote bool
	freed freed // the keys of jobs that have ended
}

// whole are claims of which all that is left is finished: that all rows go is as good a proof as that each does.
func whole(x *engine.Exchange) map[engine.ID]bool {
	all := make(map[engine.ID]bool, len(x.Closed))
	for _, c := range x.Closed {
		all[c] = true
	}
	for i := range x.Deferred {
		delete(all, x.Deferred[i].Claim)
	}
	for i := range x.Buried {
		delete(all, x.Buried[i].Claim)
	}
	return all
}

// fence deletes the rows of jobs from their claims, and returns those that were there, in order.
func (e *exchange) fence(places []engine.Place, whole map[engine.ID]bool) (ours [][]byte, err error) {
	by := make(map[engine.ID][][]byte)
	var claims []engine.ID
	for i := range places {
		p := &places[i]
		if by[p.Claim] == nil {
			claims = append(claims, p.Claim)
		}
		by[p.Claim] = append(by[p.Claim], p.Job[:])
	}
	slices.SortFunc(claims, func(a, b engine.ID) int { return bytes.Compare(a[:], b[:]) })
	for _, claim := range claims {
		jobs := by[claim]
		slices.SortFunc(jobs, bytes.Compare)
		if e.look {
			if jobs, err = lockPlaces(e.ctx, e.on, jobs, e.me[:], claim[:]); err != nil {
				return nil, err
			}
			if len(jobs) == 0 {
				continue
			}
		}
		var n int64
		if whole[claim] && !e.look {
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

// give is fence for jobs that are to be deferred or buried. It refuses those that others want cancelled.
func (e *exchange) give(places []engine.Place, got *engine.Exchanged) (ours [][]byte, err error) {
	ours, err = e.fence(places, nil)
	if err != nil || len(ours) == 0 {
		return nil, err
	}
	if got.Cancelled, err = e.d.cancelsAmong(e.ctx, e.on, e.me, ours); err == nil && len(got.Cancelled) > 0 {
		err = errSomeCancelled
	}
	return ours, err
}

func (e *exchange) finish(x *engine.Exchange, got *engine.Exchanged) error {
	if len(x.Finished) == 0 {
		return nil
	}
	ours, err := e.fence(x.Finished, whole(x))
	if err != nil || len(ours) == 0 {
		return err
	}
	if err := e.noteKeys(x, x.Finished, ours); err != nil {
		return err
	}
	if err := e.keep(x, ours); err != nil {
		return err
	}
	n, err := byKeys(e.ctx, e.on, mysqldb.FinishJobs, ours)
	got.Finished = int(n)
	return err
}

func (e *exchange) postpone(x *engine.Exchange, got *engine.Exchanged) error {
	if len(x.Deferred) == 0 {
		return nil
	}
	places := make([]engine.Place, len(x.Deferred))
	for i, d := range x.Deferred {
		places[i] = d.Place
	}
	ours, err := e.give(places, got)
	if err != nil || len(ours) == 0 {
		return err
	}
	var notes, later, since []any
	var again [][]byte
	for i := range x.Deferred {
		d := &x.Deferred[i]
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
			later = append(later, d.Job[:], max(d.Delay.Microseconds(), 1), d.Failure != "")
		case d.ReadyAt.IsZero():
			again = append(again, d.Job[:])
		default:
			since = append(since, d.Job[:], d.ReadyAt.UnixMicro())
		}
	}
	if _, err := mysql.ExecAll(e.ctx, e.on, mysqldb.NoteAttempts, mostAsks, notes); err != nil {
		return err
	}
	n, err := mysql.ExecAll(e.ctx, e.on, mysqldb.DeferJobs, mostAsks, later)
	if err == nil {
		var m int64
		m, err = mysql.ExecAll(e.ctx, e.on, mysqldb.ReadyAgainSince, mostAsks, since)
		n += m
	}
	if err == nil && len(again) > 0 {
		var m int64
		m, err = e.d.q.ReadyAgain(e.ctx, e.on, again)
		n += m
	}
	got.Deferred = int(n)
	return err
}

func (e *exchange) bury(x *engine.Exchange, got *engine.Exchanged) error {
	if len(x.Buried) == 0 {
		return nil
	}
	places := make([]engine.Place, len(x.Buried))
	for i, b := range x.Buried {
		places[i] = b.Place
	}
	ours, err := e.give(places, got)
	if err != nil || len(ours) == 0 {
		return err
	}
	if err := e.noteKeys(x, places, ours); err != nil {
		return err
	}
	var args []any
	for i := range x.Buried {
		if b := &x.Buried[i]; has(ours, b.Job) {
			args = append(args, b.Job[:], int64(b.Attempt), []byte(b.Failure))
		}
	}
	n, err := mysql.ExecAll(e.ctx, e.on, mysqldb.BuryJobs, mostAsks, args)
	if err == nil {
		err = e.keepDead(x, ours)
	}
	if err == nil {
		_, err = byKeys(e.ctx, e.on, mysqldb.FinishJobs, ours)
	}
	got.Buried = int(n)
	return err
}

func (e *exchange) claim(x *engine.Exchange, got *engine.Exchanged) error {
	a := x.Ask
	if a == nil {
		return nil
	}
	priority, us := span(a.From)
	passed := [][]byte{make([]byte, len(engine.ID{}))} // of no job: the list must not be empty
	for _, id := range a.Not {
		passed = append(passed, id[:])
	}
	n, err := e.d.q.ClaimJobs(e.ctx, e.on, mysqldb.ClaimJobsParams{
		MemberID: e.me[:], ClaimID: a.Claim[:], Queue: []byte(a.Queue), Passed: passed, Beat: a.Beat, Limit: int32(a.Most), Priority: priority, FromUs: us,
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
	got.Jobs = make([]engine.Job, len(claimed))
	kinds := make(map[string]string)
	for i, j := range claimed {
		kind, ok := kinds[string(j.Kind)]
		if !ok {
			kind = string(j.Kind)
			kinds[kind] = kind
		}
		payload, here := j.Payload.([]byte)
		got.Jobs[i] = engine.Job{
			ID: idOf(j.JobID), Kind: kind, Priority: j.Priority, Attempt: j.Attempt, MaxAttempts: j.MaxAttempts,
			EnqueuedAt: time.UnixMicro(j.EnqueuedUs).UTC(), ReadyAt: time.UnixMicro(j.ReadyUs).UTC(), Payload: payload,
			Bytes: int(j.Bytes), Unread: !here, Keyed: j.Keyed != 0, Recorded: j.Recorded != 0,
		}
	}
	return nil
}

// has tells whether a job is among some that are in order.
func has(ours [][]byte, job engine.ID) bool {
	_, found := slices.BinarySearchFunc(ours, job[:], bytes.Compare)
	return found
}

// lockPlaces locks the rows of jobs in their claim, and returns those that are there.
func lockPlaces(ctx context.Context, on mysqldb.DBTX, jobs [][]byte, member, claim []byte) (found [][]byte, err error) {
	for some := range slices.Chunk(jobs, mostAsks) {
		err := mysql.QueryEach(ctx, on, mysqldb.LockPlaces, append(anys(some), member, claim), func(row *sql.Rows) error {
			var job []byte
			err := row.Scan(&job)
			found = append(found, job)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// byKeys runs a statement that asks for nothing but the ids of jobs, and has other arguments after them.
func byKeys(ctx context.Context, on mysqldb.DBTX, query string, jobs [][]byte, others ...any) (affected int64, err error) {
	for some := range slices.Chunk(jobs, mostAsks) {
		result, err := on.ExecContext(ctx, query, append(anys(some), others...)...)
		if err != nil {
			return affected, err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return affected, err
		}
		affected += n
	}
	return affected, nil
}

func anys(jobs [][]byte) []any {
	all := make([]any, len(jobs))
	for i, j := range jobs {
		all[i] = j
	}
	return all
}

// mostAsks is how many SELECTs one statement has.
const mostAsks = 500
