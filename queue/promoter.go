package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
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
// so by themselves (WorkerOptions.Promote).
func (q *Queue) Promote(ctx context.Context) (promoted int, err error) {
	promoted, refused, err := q.promote(ctx)
	return promoted, errors.Join(err, refused)
}

func (q *Queue) promote(ctx context.Context) (promoted int, refused, err error) {
	if err := q.begin(); err != nil {
		return 0, nil, err
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
	announce func()          // that jobs are ready
	answers  atomic.Int64    // to statements that promote

	mu      sync.Mutex
	looked  time.Time            // when jobs without a group were looked at
	locked  map[driver.Group]int // groups that the last promotions found locked: how many did
	refused passed[driver.Group]
	waiting bool // for one of them, in the server's queue for its row
}

// send runs one statement, or transaction, and counts it once it is answered.
func (p *promoter) send(ctx context.Context, r *driver.PromoteRequest) (promoted int, err error) {
	promoted, err = p.db.driver.Maintenance().Promote(ctx, r)
	if err == nil {
		p.answers.Add(1)
	}
	return promoted, err
}

// waitsAfter is how often in a row a group is found locked before its row is waited for.
const waitsAfter = 3

// waitForOne promotes the jobs of one group that is found locked all the time. It waits in the
// server's queue for the group's row, beside the promotion of others.
func (p *promoter) waitForOne(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var some []driver.Group
	for group, times := range p.locked {
		if times >= waitsAfter {
			some = append(some, group)
		}
	}
	if p.waiting || len(some) == 0 || p.db.driver.RowWaits() == 0 {
		return
	}
	p.waiting = true
	one := some[rand.IntN(len(some))]
	p.calls.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rowWaitTime)
		defer cancel()
		n, err := p.send(ctx, &driver.PromoteRequest{Groups: []driver.Group{one}, Wait: rowWaitTime, Max: promoteStep})
		p.mu.Lock()
		p.waiting = false
		p.mu.Unlock()
		if err == nil && n > 0 { // after an error the next promotion meets the group, and reports it
			p.announce()
		}
	})
}

// promote is Promote. refused is the error of the first job that the server refuses.
func (p *promoter) promote(ctx context.Context) (promoted int, refused, err error) {
	var r refusal
	promoted, err = p.promotePlain(ctx, &r)
	if err != nil && !p.db.mayBeOfOne(err) {
		return promoted, r.err, err
	}
	n, failed := p.promoteGroups(ctx, &r)
	return promoted + n, r.err, errors.Join(err, failed)
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

// promoteGroups has jobs come to their groups whose time has come. A group that another transaction
// has locked is passed over, and looked at again the next time: apart from the others, and briefly.
// Behind its jobs those of other groups are found: each look begins after the jobs of the last one.
// Meanwhile jobs without a group are promoted whose time has come.
func (p *promoter) promoteGroups(ctx context.Context, r *refusal) (promoted int, err error) {
	g := &groupPromotion{p: p, ctx: ctx, refused: r, locked: make(map[driver.Group]bool), recent: time.Now()}
	p.waitForOne(ctx)
	p.mu.Lock()
	g.before = p.locked
	if p.refused == nil {
		p.refused = make(passed[driver.Group])
	}
	g.passed = p.refused.now(time.Now())
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.locked = make(map[driver.Group]int, len(g.locked))
		for group := range g.locked {
			p.locked[group] = g.before[group] + 1
		}
	}()
	for {
		var groups []driver.Group
		var last driver.DueCursor
		failed := p.db.patiently(ctx, "looking for groups", func(ctx context.Context) (err error) {
			groups, last, err = p.db.driver.Maintenance().DueGroups(ctx, g.after)
			return err
		})
		if failed != nil {
			return g.promoted, errors.Join(err, p.db.explain(sqlerr.Unwritten(failed), "looking for groups whose jobs are due"))
		}
		var suspects []driver.Group
		groups = slices.DeleteFunc(groups, func(one driver.Group) bool {
			if g.before[one] > 0 && !g.passed[one] {
				suspects = append(suspects, one)
			}
			return g.before[one] > 0 || g.passed[one]
		})
		for some := range slices.Chunk(groups, promoteStep) {
			err = errors.Join(err, g.promote(some))
		}
		err = errors.Join(err, g.promoteSuspects(suspects), g.failed)
		g.failed = nil
		if last == (driver.DueCursor{}) || ctx.Err() != nil {
			return g.promoted, err
		}
		g.after = last
		n, failed := p.promoteRecent(ctx, r)
		g.promoted, err = g.promoted+n, errors.Join(err, failed)
	}
}

// groupPromotion promotes jobs of groups, look by look.
type groupPromotion struct {
	p        *promoter
	ctx      context.Context
	after    driver.DueCursor
	passed   map[driver.Group]bool // jobs of theirs are due before after: later ones must not overtake them.
	before   map[driver.Group]int  // found locked by the last promotions; it is not changed.
	locked   map[driver.Group]bool // found locked by this one.
	waits    int                   // groups that were waited for.
	suspects time.Duration         // that those of before have taken.
	recent   time.Time             // when jobs without a group were promoted.
	failed   error                 // that failed.
	refused  *refusal              // of jobs, and of groups.
	promoted int
}

const (
	groupWait    = 50 * time.Millisecond  // how long the promotion of one group waits for its row
	groupWaits   = 2                      // groups that are waited for so long; further ones: groupWaitAgain
	suspectsTime = 200 * time.Millisecond // for groups that were found locked before

	// groupWaitAgain is short, as hundreds of groups may be locked.
	groupWaitAgain = time.Millisecond

	recentEvery = 100 * time.Millisecond // jobs without a group are promoted beside those of groups
)

// promoteSuspects promotes the jobs of groups that were found locked, one by one, in any order.
// Those that no time is left for are passed.
func (g *groupPromotion) promoteSuspects(groups []driver.Group) (err error) {
	rand.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
	for i, one := range groups {
		if g.suspects >= suspectsTime {
			g.pass(groups[i:], true)
			break
		}
		began := time.Now()
		err = errors.Join(err, g.promote(groups[i:i+1]))
		if g.locked[one] {
			g.suspects += time.Since(began)
		}
	}
	return err
}

// promoteRecent does so for jobs without a group, from time to time.
func (g *groupPromotion) promoteRecent() {
	if time.Since(g.recent) < recentEvery || g.failed != nil {
		return
	}
	n := 0
	n, g.failed = g.p.promoteRecent(g.ctx, g.refused)
	g.promoted += n
	g.recent = time.Now()
}

// promote promotes the jobs of some groups: together, or in halves if a group is locked, or has an
// error of its own.
func (g *groupPromotion) promote(groups []driver.Group) error {
	wait := groupWaitAgain
	if len(groups) == 1 && g.waits < groupWaits {
		wait = groupWait
	}
	for range maxSteps {
		g.promoteRecent()
		n := 0
		err := g.p.db.patiently(g.ctx, "promoting groups", func(ctx context.Context) (err error) {
			n, err = g.p.send(ctx, &driver.PromoteRequest{Groups: groups, After: g.after, Wait: wait, Max: promoteStep})
			return err
		})
		locked := g.p.db.driver.IsLocked(err)
		is := g.p.db.classify(err)
		switch {
		case err == nil && n < promoteStep:
			g.promoted += n
			return nil
		case err == nil:
			g.promoted += n
			continue
		case len(groups) > 1 && (locked || g.p.db.mayBeOfOne(err)):
			half := len(groups) / 2
			return errors.Join(g.promote(groups[:half]), g.promote(groups[half:]))
		}
		g.pass(groups, locked)
		if locked {
			g.waits++
		}
		if locked || is == sqlerr.Retryable {
			return nil
		}
		ofOne := g.p.db.mayBeOfOne(err)
		err = g.p.db.explain(err, "promoting jobs of groups")
		if !ofOne {
			return err
		}
		g.refuse(groups[0], err)
		return nil
	}
	g.pass(groups, false)
	return nil
}

// refuse passes over a group for a while.
func (g *groupPromotion) refuse(group driver.Group, why error) {
	if g.refused.err == nil {
		g.refused.err = fmt.Errorf("%w (group %q of queue %q)", why, group.Key, group.Queue)
	}
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	if _, known := g.p.refused[group]; known || len(g.p.refused) < maxPassed {
		g.p.refused.add(group, time.Now())
	}
}

// pass notes groups that have jobs left.
func (g *groupPromotion) pass(groups []driver.Group, locked bool) {
	for _, one := range groups {
		g.passed[one] = true
		if locked {
			g.locked[one] = true
		}
	}
}

// promoteStep promotes jobs without a group whose time came within since: in parts, if the server
// refuses one of them. more reports that there may be more of them.
func (p *promoter) promoteStep(ctx context.Context, since time.Duration, r *refusal) (n int, more bool, err error) {
	const doing = "promoting"
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
		return p.promoteInParts(ctx, since, r)
	}
	return n, more, err
}

// promoteInParts promotes the first jobs without a group whose time came within since. One that the
// server refuses alone is put off, so that it stops no others. One that is locked is not.
func (p *promoter) promoteInParts(ctx context.Context, since time.Duration, r *refusal) (promoted int, more bool, err error) {
	var due []driver.DueCursor
	err = p.db.patiently(ctx, "looking for due jobs", func(ctx context.Context) (err error) {
		due, err = p.db.driver.Maintenance().DueJobs(ctx, since, promoteStep)
		return err
	})
	if err != nil {
		return 0, false, p.db.explain(sqlerr.Unwritten(err), "looking for due jobs")
	}
	var locked error
	err = inParts(p.db, due, func(jobs []driver.DueCursor) error {
		return p.db.again(ctx, "promoting", func(ctx context.Context) error {
			n, err := p.send(ctx, &driver.PromoteRequest{Jobs: jobs, Max: len(jobs)})
			promoted += n
			return err
		})
	}, func(j driver.DueCursor, why error) error {
		if p.db.driver.IsLocked(why) || p.db.classify(why) == sqlerr.Retryable {
			locked = why
			return nil
		}
		r.add(j.Job, why)
		err := p.db.again(ctx, "putting off a job that the server refuses", func(ctx context.Context) error {
			return p.db.driver.Maintenance().Postpone(ctx, j, pace.Jitter(refusedFor))
		})
		if p.db.mayBeOfOne(err) { // the server refuses that, too
			return nil
		}
		return err
	})
	if promoted == 0 && err == nil {
		err = locked
	}
	return promoted, len(due) == promoteStep, err
}
