package dblock

import (
	"context"
	"time"
)

// The pauses between two tries to regain nodes that a held lock misses.
const (
	leastRejoin = 250 * time.Millisecond
	maxRejoin   = 2 * time.Second
)

// misses reports that a node does not hold the lock; h.mu is held.
func (h *quorumHold) misses(node int) bool {
	return h.nodes[node] == nil || h.nodes[node].Context().Err() != nil
}

// answered takes the answer of a node that is not waited for any more. What it has granted joins
// the lock, or what that was handed off as, or is released; nil: it has granted nothing.
func (h *quorumHold) answered(node int, lock *Lock) {
	h.mu.Lock()
	next := h.next
	if next == nil {
		h.waits[node] = false
		switch {
		case lock != nil && h.joins():
			h.nodes[node] = lock
			h.pauses.tries = 0
			if h.notifyLost != nil { // else start watches it
				h.watch(lock)
			}
			lock = nil
		case lock == nil:
			h.planRejoin()
		}
	}
	h.mu.Unlock()
	switch {
	case next != nil:
		next.answered(node, lock)
	case lock != nil:
		_ = lock.Release(context.Background())
	default:
		h.check()
	}
}

// joins reports that a node may join. After a moment without a majority none may, as another
// process may have had the lock meanwhile; h.mu is held.
func (h *quorumHold) joins() bool {
	until, _ := h.validUntil()
	return h.why == "" && until.After(h.q.clock.Now())
}

// planRejoin has the nodes that are missing asked again after a pause; h.mu is held.
func (h *quorumHold) planRejoin() {
	if h.why != "" || h.notifyLost == nil || h.rejoinTimer != nil {
		return
	}
	for i := range h.nodes {
		if h.misses(i) && !h.waits[i] {
			h.rejoinTimer = h.q.clock.AfterFunc(h.pauses.next(), h.rejoin)
			return
		}
	}
}

// rejoin asks the nodes that are missing. What they grant has the end of WithMaxHold, and no other:
// it could not be moved out, and is released when the lock ends.
func (h *quorumHold) rejoin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rejoinTimer = nil
	r, now := h.waiter.request, h.q.clock.Now()
	if r.MaxHold != nil {
		left := h.latestEnd.Add(h.slack).Sub(now)
		r.MaxHold = &left
	}
	if h.why != "" || !h.until.IsZero() && h.until.Sub(now) < leastWait {
		return
	}
	for i := range h.nodes {
		if h.misses(i) && !h.waits[i] {
			h.waits[i] = true
			before := h.nodes[i]
			h.q.tasks.Go(func() { h.rejoinNode(i, before, r) }) // before the lock ends, and so before Close has done
		}
	}
}

// rejoinNode asks one node, after it has released what it had granted before.
func (h *quorumHold) rejoinNode(node int, before *Lock, r request) {
	ctx, cancel := context.WithCancelCause(h.ctx)
	defer cancel(nil)
	defer h.q.clock.AfterFunc(h.q.o.NodeTimeout, func() { cancel(errNodeTimeout) }).Stop()
	if before != nil {
		_ = before.Release(ctx)
	}
	lock, err := h.q.nodes[node].TryAcquire(ctx, h.key, passedOn(r)...)
	if err != nil {
		lock = nil
	}
	h.answered(node, lock)
}
