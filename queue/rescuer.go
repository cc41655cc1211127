package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// errWorkerGone is how an attempt failed whose process is gone.
var errWorkerGone = errors.New("its worker is gone")

// Rescue ends the attempts of processes that are gone, of all queues, as attempts that failed:
// their jobs are tried again after a backoff. A job whose last attempt had begun is dead. If it
// is known that an attempt had not begun, its job is ready again at once, and no attempt is
// counted: of last attempts, and of jobs that were rescued before. A job that was to be cancelled
// (Cancel) is dropped, and not counted. Rescue returns how many jobs run again, and how many are
// dead. Workers do so by themselves (WorkerOptions.Rescue).
//
// The backoff is that of the kind's handler in this process, or the default of WorkerOptions.
func (q *Queue) Rescue(ctx context.Context) (again, dead int, err error) {
	if err := q.begin(); err != nil {
		return 0, 0, err
	}
	defer q.calls.Done()
	var refused error
	again, dead, refused, err = q.rescue(ctx, defaultBackoff)
	return again, dead, errors.Join(err, refused)
}

// rescue is Rescue. refused is the error of the first job that the server refuses to rescue.
func (q *Queue) rescue(ctx context.Context, backoff func(int, error) time.Duration) (again, dead int, refused, err error) {
	var suspects []member.ID
	err = q.db.patiently(ctx, "looking for the gone", func(ctx context.Context) (err error) {
		suspects, err = q.driver.Maintenance().Suspects(ctx)
		return err
	})
	if err != nil {
		return 0, 0, nil, q.db.explain(sqlerr.Unwritten(err), "looking for members that are gone")
	}
	r := newRescue(ctx, q, backoff, member.NewID())
	for _, m := range suspects {
		err = errors.Join(err, r.of(m))
	}
	err = errors.Join(err, r.last())
	if r.again+r.dead+r.dropped > 0 { // of a group whose job is dead the next one is ready
		q.notices.announce(driver.AnyQueue)
	}
	if r.again+r.dead > 0 {
		if f := q.o.Observer.Rescued; f != nil {
			f(r.again, r.dead)
		}
	}
	return r.again, r.dead, r.refused.err, err
}

// rescue ends the jobs of members that are gone. Their claims are recorded for heir first, so that
// no other process ends them meanwhile. If the rescue ends in between, heir is a member that is
// gone for the next one.
type rescue struct {
	q       *Queue
	ctx     context.Context
	backoff func(int, error) time.Duration
	heir    member.ID

	jobs   map[driver.ID]driver.Orphan // of the claims that are taken now
	apart  []lastEnd                   // they need unique keys and groups, which may be locked
	open   map[driver.ID]int           // claims, and how many of apart they have
	closed []driver.ID                 // of them: nothing is left

	refusals int // jobs that the server refuses to rescue
	refused  refusal

	again, dead, dropped int
}

func newRescue(ctx context.Context, q *Queue, backoff func(int, error) time.Duration, heir member.ID) *rescue {
	return &rescue{q: q, ctx: ctx, backoff: backoff, heir: heir, jobs: make(map[driver.ID]driver.Orphan), open: make(map[driver.ID]int)}
}

// lastEnd is the end of a job for good.
type lastEnd struct {
	driver.Discard
	dropped bool // it is not discarded: it is cancelled
	job     driver.Orphan
	locked  bool // its keys were, when it was tried last
}

// of ends the jobs of one member, but for those apart.
func (r *rescue) of(m member.ID) error {
	q := r.q
	gone := false
	err := q.db.within(r.ctx, func(ctx context.Context) (err error) {
		gone, err = q.driver.Members().Evict(ctx, m)
		return err
	})
	if err != nil {
		return q.db.explain(err, "looking whether a member is gone")
	}
	for range maxSteps {
		if !gone {
			return nil
		}
		var claims []driver.ID
		var jobs []driver.Orphan
		err := q.db.inSteps(r.ctx, "taking the claims of a member that is gone", adoptStep, func(ctx context.Context, most int) (err error) {
			claims, jobs, err = q.driver.Maintenance().Adopt(ctx, &driver.AdoptRequest{From: m, Heir: r.heir, Max: most})
			return err
		})
		if err != nil || len(claims) == 0 {
			return err
		}
		if err := r.end(r.ends(claims, jobs)); err != nil {
			for _, c := range claims {
				r.open[c]++ // so that last does not close it: it has jobs that have not ended
			}
			return err
		}
	}
	return nil
}

const (
	adoptStep  = 500  // jobs that one statement takes over
	rescueStep = 2000 // jobs that one statement ends
	maxRefused = 100  // jobs, before the server is to blame
)

// end has jobs end, step by step.
func (r *rescue) end(x *driver.SyncBatch) error {
	for {
		var rest *driver.SyncBatch
		var cancelled []driver.ID
		err := r.q.db.inSteps(r.ctx, "rescuing jobs", min(max(x.Ends(), 1), rescueStep), func(ctx context.Context, most int) (err error) {
			var some *driver.SyncBatch
			some, rest = split(x, most)
			cancelled, err = r.sync(ctx, some)
			return err
		})
		switch {
		case x.Ends() > 0 && r.q.db.mayBeOfOne(err):
			return r.endInParts(x, err)
		case err != nil:
			return err
		case len(cancelled) > 0:
			r.drop(x, cancelled)
		case rest == nil:
			return nil
		default:
			x = rest
		}
	}
}

// endInParts has jobs end that the server refused to end together. One that it refuses alone stays
// in its claim, for the next rescue.
func (r *rescue) endInParts(x *driver.SyncBatch, why error) error {
	if n := x.Ends(); n > 1 {
		some, rest := split(x, n/2)
		if err := r.end(some); err != nil {
			return err
		}
		return r.end(rest)
	}
	for _, p := range x.Unfinished() {
		r.open[p.Claim]++
		r.refused.add(p.Job, why)
	}
	if r.refusals++; r.refusals == maxRefused && r.again+r.dead == 0 && r.q.db.classify(why) != sqlerr.BadInput {
		return why // that may be of all jobs
	}
	return r.end(&driver.SyncBatch{Closed: x.Closed})
}

// split divides the ends of jobs, and has claims be closed with the last of them; rest is nil if
// there are no more than n.
func split(x *driver.SyncBatch, n int) (some, rest *driver.SyncBatch) {
	if x.Ends() <= n {
		return x, nil
	}
	d := min(n, len(x.Rescheduled))
	b := n - d
	return &driver.SyncBatch{Rescheduled: x.Rescheduled[:d], Discarded: x.Discarded[:b]},
		&driver.SyncBatch{Rescheduled: x.Rescheduled[d:], Discarded: x.Discarded[b:], Closed: x.Closed}
}

// ends says what becomes of jobs.
func (r *rescue) ends(claims []driver.ID, jobs []driver.Orphan) *driver.SyncBatch {
	x := &driver.SyncBatch{}
	clear(r.jobs)
	for _, j := range jobs {
		r.jobs[j.Job] = j
		attempt := min(j.Attempt+1, j.MaxAttempts)
		begun := j.Begun > j.Attempt || j.Attempt >= j.MaxAttempts
		known := j.Begun >= 0 || attempt == j.MaxAttempts // the last attempt is always recorded
		burial := driver.Discard{Position: j.Position, Attempt: attempt, Failure: errWorkerGone.Error()}
		switch {
		case known && !begun:
			x.Rescheduled = append(x.Rescheduled, driver.Reschedule{Position: j.Position, Attempt: j.Attempt, Records: j.Begun != j.Attempt})
		case attempt < j.MaxAttempts:
			x.Rescheduled = append(x.Rescheduled, driver.Reschedule{
				Position: j.Position, Attempt: attempt, Failure: burial.Failure, Records: true, Delay: r.q.pauseAfter(j.Kind, r.backoff, int(attempt), errWorkerGone),
			})
		case j.Keyed:
			r.goesApart(burial, false)
		default:
			x.Discarded = append(x.Discarded, burial)
		}
	}
	for _, c := range claims {
		if r.open[c] == 0 {
			x.Closed = append(x.Closed, c)
		}
	}
	return x
}

func (r *rescue) goesApart(b driver.Discard, dropped bool) {
	r.apart = append(r.apart, lastEnd{Discard: b, dropped: dropped, job: r.jobs[b.Job]})
	r.open[b.Claim]++
}

// drop has jobs go apart that others want cancelled.
func (r *rescue) drop(x *driver.SyncBatch, cancelled []driver.ID) {
	asked := setOf(cancelled)
	x.Rescheduled = slices.DeleteFunc(x.Rescheduled, func(d driver.Reschedule) bool {
		if asked[d.Job] {
			r.goesApart(driver.Discard{Position: d.Position, Attempt: d.Attempt, Failure: d.Failure}, true)
		}
		return asked[d.Job]
	})
	x.Discarded = slices.DeleteFunc(x.Discarded, func(b driver.Discard) bool {
		if asked[b.Job] {
			r.goesApart(b, true)
		}
		return asked[b.Job]
	})
}

// sync is one of heir. If others want some jobs cancelled, which were to be rescheduled or
// discarded, nothing has taken place.
func (r *rescue) sync(ctx context.Context, x *driver.SyncBatch) (cancelled []driver.ID, err error) {
	x.Member, x.KeepDiscarded = r.heir, r.q.o.History > 0
	x.Closed = slices.DeleteFunc(x.Closed, func(c driver.ID) bool { return r.open[c] > 0 })
	got, err := r.q.driver.Sync(ctx, x)
	r.again, r.dead, r.dropped = r.again+got.Rescheduled, r.dead+got.Discarded, r.dropped+got.Completed
	return got.Cancelled, err
}

// last discards the jobs apart, or drops them, one by one, for as long as Options.Timeout, in no
// order. Those whose keys are locked, or whose groups have wrong counts, are left for the next
// rescue.
func (r *rescue) last() (err error) {
	if len(r.apart) == 0 {
		return nil
	}
	within, cancel := context.WithTimeout(r.ctx, r.q.o.Timeout)
	defer cancel()
	rand.Shuffle(len(r.apart), func(i, j int) { r.apart[i], r.apart[j] = r.apart[j], r.apart[i] })
	var locked []*lastEnd
	for i := 0; i < len(r.apart) && within.Err() == nil && err == nil; i++ {
		j := &r.apart[i]
		if err = r.endApart(within, j); j.locked {
			locked = append(locked, j)
		}
	}
	for i := 0; i < len(locked) && r.q.driver.RowWaits() > 0 && within.Err() == nil && err == nil; i++ {
		err = r.endApart(within, locked[i])
	}
	if len(r.closed) == 0 {
		return err
	}
	return errors.Join(err, r.q.db.again(r.ctx, "closing claims whose worker is gone", func(ctx context.Context) error {
		_, err := r.sync(ctx, &driver.SyncBatch{Closed: r.closed})
		return err
	}))
}

// endApart discards or drops one job. Its error is not of that job alone.
func (r *rescue) endApart(ctx context.Context, j *lastEnd) error {
	var cancelled []driver.ID
	err := r.q.db.again(ctx, "giving up a job whose worker is gone", func(ctx context.Context) (err error) {
		x := &driver.SyncBatch{Discarded: []driver.Discard{j.Discard}, WaitsForRows: j.locked}
		if j.dropped {
			x.Discarded = nil
			r.q.dropIn(x, j.Position, j.Attempt)
		}
		cancelled, err = r.sync(ctx, x)
		return err
	})
	switch {
	case ctx.Err() != nil || r.q.db.gaveWay(err):
		j.locked = r.q.driver.IsLocked(err)
		return nil
	case err != nil && !r.q.db.classify(err).MayBeOfOne():
		return err
	case err != nil:
		r.q.trouble("giving up a job whose worker is gone", err)
		return nil
	case len(cancelled) > 0:
		j.dropped = true
		return r.endApart(ctx, j)
	}
	if r.open[j.Claim]--; r.open[j.Claim] == 0 {
		r.closed = append(r.closed, j.Claim)
	}
	if o := j.job; j.dropped {
		r.q.cancelled(infoOf(driver.Record{
			ID: o.Job, Queue: o.Queue, Kind: o.Kind, Priority: o.Priority, Attempt: min(o.Attempt, o.MaxAttempts-1),
			MaxAttempts: o.MaxAttempts, EnqueuedAt: o.EnqueuedAt,
		}), ErrCancelled)
	}
	return nil
}
