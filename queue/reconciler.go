package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// claimSet is the claims that this process knows of: those that it asks for, and those whose end is
// not confirmed yet. A claim is in it before its statement is sent.
type claimSet struct {
	mu  sync.Mutex
	ids map[driver.ID]struct{}
}

func (s *claimSet) add(id driver.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = make(map[driver.ID]struct{})
	}
	s.ids[id] = struct{}{}
}

func (s *claimSet) drop(id driver.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ids, id)
}

func (s *claimSet) has(id driver.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.ids[id]
	return has
}

// reconciler releases the claims that the database has for this process, and that it does not
// know of: their replies were lost.
type reconciler struct {
	q      *Queue
	claims claimSet

	mu  sync.Mutex
	inc *member.Incarnation // the last one whose claims are reconciled
}

// reconciles does so with each heartbeat of an incarnation.
func (c *reconciler) reconciles(inc *member.Incarnation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inc == inc {
		return
	}
	c.inc = inc
	inc.OnHeartbeat(func(ctx context.Context, _ int64) (settled bool) {
		c.reconcile(ctx, inc.ID)
		return false
	})
}

// reconcile reads the recorded claims first, and then looks which of them are known: a claim is
// known until the database has confirmed that it is gone.
func (c *reconciler) reconcile(ctx context.Context, m member.ID) {
	recorded, err := c.q.driver.Maintenance().ClaimsOf(ctx, m)
	if err != nil {
		c.q.trouble("reading the claims of this process", err)
		return
	}
	for _, claim := range recorded {
		if c.claims.has(claim) {
			continue
		}
		if err := c.releaseRest(ctx, m, claim); err != nil {
			c.q.trouble("giving back a claim that got no answer", err)
		}
	}
}

// releaseRest has the jobs of a claim be ready again: its reply was lost, and none has begun.
// Those that others want cancelled are dropped.
func (c *reconciler) releaseRest(ctx context.Context, m member.ID, claim driver.ID) error {
	claims, jobs, err := c.q.driver.Maintenance().Adopt(ctx, &driver.AdoptRequest{From: m, Heir: m, Claim: claim})
	if err != nil || len(claims) == 0 {
		return err
	}
	r := newRescue(ctx, c.q, nil, m)
	x := &driver.SyncBatch{Closed: claims}
	for _, j := range jobs {
		r.jobs[j.Job] = j
		x.Rescheduled = append(x.Rescheduled, driver.Reschedule{Position: j.Position, Attempt: j.Attempt})
	}
	if err := errors.Join(r.end(x), r.last()); err != nil {
		return err
	}
	c.q.notices.announce(driver.AnyQueue)
	return nil
}

// firstCheck is after how long a claim that got no answer is looked for again, and then after twice
// as long each time, until the heartbeats come sooner. It may be on its way when it is looked for
// first.
const firstCheck = 100 * time.Millisecond

// releaseClaim has a claim that got no answer looked for at once and soon. Its statement does
// nothing if it begins after two more heartbeats.
func (c *reconciler) releaseClaim(inc *member.Incarnation, pause time.Duration) {
	inc.CheckSoon()
	if pause < c.q.member.TTL()/3 && !inc.Lost() {
		time.AfterFunc(pause, func() { c.releaseClaim(inc, 2*pause) })
	}
}
