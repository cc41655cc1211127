package queue

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/queue/internal/driver"
)

const (
	promoteStep = 1000 // jobs that one statement promotes
	maxSteps    = 100  // of one call
	ofEachStep  = 100  // of each queue, in one statement
	lookPause   = 10   // times as long as a look beside the backlog took: the next one begins after that

	refusedFor   = 15 * time.Second // a job that the server refuses is due again after that.
	everDue      = 100 * 365 * 24 * time.Hour
	sinceSlack   = time.Second      // jobs are committed a little later than their time
	longestSince = 10 * time.Second // and the TTL: another process may have looked last, and be gone
)

// Promote makes the jobs ready whose time has come, of all queues, and returns how many. Workers do
// so by themselves (WorkerOptions.Promote). Jobs that another transaction has locked, and others of
// their queues, are tried for about three seconds: the next call promotes the rest. The call passes
// over jobs that another promotion has under way. Of several calls of a Queue at the same time one
// counts the jobs that were locked.
//
// Errors: that of the first job that the server refuses; dblock.ErrBusy or ErrConflict, if jobs
// stay locked; ctx's; and those of the database. The others are promoted all the same.
func (q *Queue) Promote(ctx context.Context) (promoted int, err error) {
	if err := q.begin(); err != nil {
		return 0, err
	}
	defer q.calls.Done()
	q.promoter.takeTried() // of earlier calls
	promoted, r, err := q.promote(ctx)
	if err != nil {
		return promoted, errors.Join(err, r.any())
	}
	tried, err := q.promoter.tryNow(ctx)
	if tried.isEmpty() && q.promoter.hasStuck() { // another call has what became of them
		tried.locked = r.locked
	}
	return promoted + tried.promoted, errors.Join(err, r.err, cmp.Or(tried.err, tried.locked))
}

func (q *Queue) promote(ctx context.Context) (promoted int, r refusal, err error) {
	if err := q.begin(); err != nil {
		return 0, r, err
	}
	defer q.calls.Done()
	defer func() {
		if promoted > 0 {
			q.notices.announce(driver.AnyQueue)
		}
	}()
	return q.promoter.promote(ctx)
}

// promoter makes the jobs ready whose time has come.
type promoter struct {
	db  *statements
	ttl time.Duration // of members

	calls    *sync.WaitGroup // of the Queue
	ending   context.Context // likewise
	announce func()          // that jobs are ready
	answers  atomic.Int64    // to statements that promote

	mu      sync.Mutex
	looked  time.Time            // when jobs without a group were looked at
	locked  map[driver.Group]int // groups that the last promotions found locked: how many did
	refused passed[driver.Group]
	waiting bool // for one of them, in the server's queue for its row

	stuck  map[string]*stuckJobs // queues that have a job without a group that is locked
	trying chan struct{}         // they are, beside the others, until it is closed
	tried  stuckTry              // the last one, until a call has seen it
}

// send runs one statement, or transaction, and counts it once it is answered.
func (p *promoter) send(ctx context.Context, r *driver.PromoteRequest) (promoted int, err error) {
	promoted, err = p.db.driver.Maintenance().Promote(ctx, r)
	if err == nil {
		p.answers.Add(1)
	}
	return promoted, err
}

// promote is Promote.
func (p *promoter) promote(ctx context.Context) (promoted int, r refusal, err error) {
	promoted, err = p.promotePlain(ctx, &r)
	if err != nil && !p.db.mayBeOfOne(err) {
		return promoted, r, err
	}
	n, failed := p.promoteGroups(ctx, &r)
	return promoted + n, r, errors.Join(err, failed)
}

// promotePlain promotes jobs without a group, in the order of their times. While there is a backlog
// of them, jobs whose time has come since the last look are promoted between its steps: those that
// are urgent do not wait for the backlog. So they do not wait, either, if the first step fails, for
// example as it passes over more deleted rows than Options.Timeout allows for. The most urgent jobs
// of the backlog itself are promoted now and then, and some of each queue: the backlog may be of
// another one.
func (p *promoter) promotePlain(ctx context.Context, r *refusal) (promoted int, err error) {
	urgent := lookBeside{request: driver.PromoteRequest{Urgent: true, Max: promoteStep}}
	ofEach := lookBeside{request: driver.PromoteRequest{OfEach: ofEachStep, Max: promoteStep}}
	for range maxSteps {
		began := time.Now()
		n, more, err := p.promoteStep(ctx, everDue, r)
		promoted += n
		if err == nil && !more {
			p.lookedAt(began)
			return promoted, nil
		}
		m, failed := p.promoteRecent(ctx, r)
		promoted += m
		if err = errors.Join(err, failed); err != nil {
			return promoted, err
		}
		promoted += p.promoteBeside(ctx, &ofEach) + p.promoteBeside(ctx, &urgent)
	}
	return promoted, nil
}

// lookBeside is a look for jobs of a backlog that are not to wait for their turn.
type lookBeside struct {
	request driver.PromoteRequest
	again   time.Time
}

// promoteBeside promotes such jobs now and then. If that fails, the steps promote them, later.
func (p *promoter) promoteBeside(ctx context.Context, l *lookBeside) (promoted int) {
	began := time.Now()
	if began.Before(l.again) {
		return 0
	}
	_ = p.db.within(ctx, func(ctx context.Context) (err error) {
		promoted, err = p.send(ctx, &l.request)
		return err
	})
	l.again = time.Now().Add(lookPause * time.Since(began))
	return promoted
}

// promoteRecent promotes jobs without a group whose time has come since the last look.
func (p *promoter) promoteRecent(ctx context.Context, r *refusal) (promoted int, err error) {
	began, since := time.Now(), p.ttl+longestSince
	p.mu.Lock()
	if !p.looked.IsZero() {
		since = min(began.Sub(p.looked)+sinceSlack, since)
	}
	p.mu.Unlock()
	promoted, _, err = p.promoteStep(ctx, since, r)
	if err == nil {
		p.lookedAt(began)
	}
	return promoted, err
}

// lookedAt notes when the jobs were looked at whose time had come.
func (p *promoter) lookedAt(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looked = at
}

// promoteStep promotes jobs without a group whose time came within since: in parts, if the server
// refuses one of them. more reports that there may be more of them.
func (p *promoter) promoteStep(ctx context.Context, since time.Duration, r *refusal) (n int, more bool, err error) {
	const doing = "promoting"
	stuck := p.tryStuck(ctx, r)
	if len(stuck) > 0 {
		return p.promoteInParts(ctx, &driver.DueRequest{Since: since, Queues: stuck, Max: promoteStep}, true, r)
	}
	step := func(ctx context.Context, rows int) (err error) {
		n, err = p.send(ctx, &driver.PromoteRequest{Since: since, Max: rows})
		more = n == rows
		return err
	}
	if since == everDue {
		err = p.db.inSteps(ctx, doing, promoteStep, step)
	} else {
		err = p.db.again(ctx, doing, func(ctx context.Context) error { return step(ctx, promoteStep) })
	}
	if p.db.mayBeOfOne(err) {
		return p.promoteInParts(ctx, &driver.DueRequest{Since: since, Max: promoteStep}, false, r)
	}
	return n, more, err
}
