package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

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
