package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

const (
	promoteStep = 1000 // jobs that one statement promotes
	mostSteps   = 100  // of one call
	urgentShare = 10   // so many times as long as the look for urgent jobs took, there is no other one

	everDue      = 100 * 365 * 24 * time.Hour
	sinceSlack   = time.Second      // jobs are committed a little later than their time
	longestSince = 10 * time.Second // and the TTL: another process may have looked last, and be gone
)

// Promote has jobs be ready whose time has come, of all queues, and returns how many. Workers do so by themselves (WorkerOptions.Promote).
func (q *Queue) Promote(ctx context.Context) (promoted int, err error) {
	if err := q.enter(); err != nil {
		return 0, err
	}
	defer q.calls.Done()
	defer func() {
		if promoted > 0 {
			q.announce(driver.AnyQueue)
		}
	}()
	promoted, err = q.promotePlain(ctx)
	if err != nil {
		return promoted, err
	}
	n, err := q.promoteGroups(ctx)
	return promoted + n, err
}

// promotePlain promotes jobs without a group, in the order of their times. While there is a backlog
// of them, jobs whose time has come since the last look are promoted between its steps: those that
// are urgent do not wait for the backlog. So they do not wait, either, if the first step fails, for
// example as it passes over more deleted rows than Options.Timeout allows for. The most urgent jobs
// of the backlog itself are promoted now and then.
func (q *Queue) promotePlain(ctx context.Context) (promoted int, err error) {
	var urgentAgain time.Time
	for range mostSteps {
		began := time.Now()
		n, err := q.promoteStep(ctx, everDue)
		promoted += n
		if err == nil && n < promoteStep {
			q.looked(began)
			return promoted, nil
		}
		m, failed := q.promoteRecent(ctx)
		promoted += m
		if err = errors.Join(err, failed); err != nil {
			return promoted, err
		}
		if began := time.Now(); began.After(urgentAgain) {
			promoted += q.promoteUrgent(ctx)
			urgentAgain = time.Now().Add(urgentShare * time.Since(began))
		}
	}
	return promoted, nil
}

// promoteUrgent promotes the most urgent jobs of a backlog. If that fails, the steps promote them, later.
func (q *Queue) promoteUrgent(ctx context.Context) (promoted int) {
	_ = q.within(ctx, func(ctx context.Context) (err error) {
		promoted, err = q.driver.Maintenance().Promote(ctx, &driver.PromoteRequest{Urgent: true, Most: promoteStep})
		return err
	})
	return promoted
}

// promoteRecent promotes jobs without a group whose time has come since the last look.
func (q *Queue) promoteRecent(ctx context.Context) (promoted int, err error) {
	began, since := time.Now(), q.member.TTL()+longestSince
	q.mu.RLock()
	if !q.promotedAt.IsZero() {
		since = min(began.Sub(q.promotedAt)+sinceSlack, since)
	}
	q.mu.RUnlock()
	promoted, err = q.promoteStep(ctx, since)
	if err == nil {
		q.looked(began)
	}
	return promoted, err
}

// looked notes when the jobs were looked at whose time had come.
func (q *Queue) looked(at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.promotedAt = at
}

// promoteGroups has jobs come to their groups whose time has come. A group that another transaction has locked is passed over, and looked
// at again the next time: apart from the others, and briefly. Behind its jobs those of other groups are found: each look begins after the
// jobs of the last one. Meanwhile jobs without a group are promoted whose time has come.
func (q *Queue) promoteGroups(ctx context.Context) (promoted int, err error) {
	p := &groupPromotion{q: q, ctx: ctx, passed: make(map[driver.Group]bool), locked: make(map[driver.Group]bool), recent: time.Now()}
	q.mu.Lock()
	p.before = q.locked
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		q.locked = p.locked
		q.mu.Unlock()
	}()
	for {
		var groups []driver.Group
		var last driver.DueCursor
		failed := q.patiently(ctx, "looking for groups", func(ctx context.Context) (err error) {
			groups, last, err = q.driver.Maintenance().DueGroups(ctx, p.after)
			return err
		})
		if failed != nil {
			return p.promoted, errors.Join(err, q.explain(sqlerr.Unwritten(failed), "looking for groups whose jobs are due"))
		}
		var suspects []driver.Group
		groups = slices.DeleteFunc(groups, func(g driver.Group) bool {
			if p.before[g] && !p.passed[g] {
				suspects = append(suspects, g)
			}
			return p.before[g] || p.passed[g]
		})
		for some := range slices.Chunk(groups, promoteStep) {
			err = errors.Join(err, p.promote(some))
		}
		err = errors.Join(err, p.promoteSuspects(suspects), p.failed)
		p.failed = nil
		if last == (driver.DueCursor{}) || ctx.Err() != nil {
			return p.promoted, err
		}
		p.after = last
		n, failed := q.promoteRecent(ctx)
		p.promoted, err = p.promoted+n, errors.Join(err, failed)
	}
}

// groupPromotion promotes jobs of groups, look by look.
type groupPromotion struct {
	q        *Queue
	ctx      context.Context
	after    driver.DueCursor
	passed   map[driver.Group]bool // jobs of theirs are due before after: later ones must not overtake them
	before   map[driver.Group]bool // found locked by the last promotion; it is not changed
	locked   map[driver.Group]bool // found locked by this one
	waits    int                   // groups that were waited for
	suspects time.Duration         // that those of before have taken
	recent   time.Time             // when jobs without a group were promoted
	failed   error                 // that failed
	promoted int
}

const (
	groupWait    = 50 * time.Millisecond  // how long the promotion of one group waits for its row
	groupWaits   = 2                      // groups that are waited for so long; further ones: keyWaitAgain
	suspectsTime = 200 * time.Millisecond // for groups that were found locked before
	recentEvery  = 100 * time.Millisecond // jobs without a group are promoted beside those of groups
)

// promoteSuspects promotes the jobs of groups that were found locked, one by one, in any order. Those that no time is left for are passed.
func (p *groupPromotion) promoteSuspects(groups []driver.Group) (err error) {
	rand.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
	for i, g := range groups {
		if p.suspects >= suspectsTime {
			p.pass(groups[i:], true)
			break
		}
		began := time.Now()
		err = errors.Join(err, p.promote(groups[i:i+1]))
		if p.locked[g] {
			p.suspects += time.Since(began)
		}
	}
	return err
}

// promoteRecent does so for jobs without a group, from time to time.
func (p *groupPromotion) promoteRecent() {
	if time.Since(p.recent) < recentEvery || p.failed != nil {
		return
	}
	n := 0
	n, p.failed = p.q.promoteRecent(p.ctx)
	p.promoted += n
	p.recent = time.Now()
}

// promote promotes the jobs of some groups: together, or in halves if a group is locked, or has an error of its own.
func (p *groupPromotion) promote(groups []driver.Group) error {
	wait := keyWaitAgain
	if len(groups) == 1 && p.waits < groupWaits {
		wait = groupWait
	}
	for range mostSteps {
		p.promoteRecent()
		n := 0
		err := p.q.patiently(p.ctx, "promoting groups", func(ctx context.Context) (err error) {
			n, err = p.q.driver.Maintenance().Promote(ctx, &driver.PromoteRequest{Groups: groups, After: p.after, Wait: wait, Most: promoteStep})
			return err
		})
		locked := p.q.driver.IsLocked(err)
		is := p.q.classify(err)
		switch {
		case err == nil && n < promoteStep:
			p.promoted += n
			return nil
		case err == nil:
			p.promoted += n
			continue
		case len(groups) > 1 && (locked || is == sqlerr.BadInput):
			half := len(groups) / 2
			return errors.Join(p.promote(groups[:half]), p.promote(groups[half:]))
		}
		p.pass(groups, locked)
		if locked {
			p.waits++
		}
		if locked || is == sqlerr.Retryable {
			return nil
		}
		return p.q.explain(err, "promoting jobs of groups")
	}
	p.pass(groups, false)
	return nil
}

// pass notes groups that have jobs left.
func (p *groupPromotion) pass(groups []driver.Group, locked bool) {
	for _, g := range groups {
		p.passed[g] = true
		if locked {
			p.locked[g] = true
		}
	}
}

func (q *Queue) promoteStep(ctx context.Context, since time.Duration) (n int, err error) {
	within := q.within
	if since == everDue {
		within = func(ctx context.Context, f func(context.Context) error) error {
			return q.patiently(ctx, "promoting", f)
		}
	}
	for range insertTries {
		err = within(ctx, func(ctx context.Context) (err error) {
			n, err = q.driver.Maintenance().Promote(ctx, &driver.PromoteRequest{Since: since, Most: promoteStep})
			return err
		})
		if err == nil || q.classify(err) != sqlerr.Retryable {
			break
		}
	}
	if err != nil {
		return n, q.explain(err, "promoting")
	}
	return n, nil
}
