package dblock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
)

// quorumHold is a lock that a majority of nodes has granted.
type quorumHold struct {
	q     *Quorum
	key   string
	began time.Time
	tell  func(Reason) // the Lock, that it is lost

	moving chan struct{} // has room for one call that moves the end

	mu    sync.Mutex
	nodes []*Lock
	most  time.Time // no later end is possible: WithMaxHold less the drift, or an ExpireIn without an answer; zero: none
	until time.Time // its end, regardless of heartbeats; zero: none
	timer clock.Timer
	why   Reason // why it has ended, lost or released; empty: it has not
}

var errTooSlow = errors.New("what the nodes granted was over before a majority had answered")

// hold makes the lock of the nodes that have granted it.
func (q *Quorum) hold(ctx context.Context, a *asked) (*Lock, *quorumHold, error) {
	h := &quorumHold{q: q, key: a.r.Key, began: q.clock.Now(), nodes: slices.Clone(a.granted), moving: make(chan struct{}, 1)}
	if a.r.MaxHold != nil {
		h.most = a.began.Add(*a.r.MaxHold - q.drift(*a.r.MaxHold))
		h.until = h.most
	}
	if !h.ValidUntil().After(h.began) {
		return nil, nil, errTooSlow
	}
	var lock *Lock
	lock, h.tell = NewLock(ctx, q, a.r, h)
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return nil, nil, ErrClosed
	}
	q.holds[h] = struct{}{}
	q.mu.Unlock()
	for _, node := range a.granted {
		h.watch(node)
	}
	h.check()
	return lock, h, nil
}

// drift is by how much earlier than its nodes a lock ends that lasts for d.
func (q *Quorum) drift(d time.Duration) time.Duration {
	if q.o.Drift > 0 {
		return q.o.Drift
	}
	return d/100 + 2*time.Millisecond
}

// join adds a node that has answered late; false where the lock has ended.
func (h *quorumHold) join(node *Lock) bool {
	h.mu.Lock()
	if h.why != "" {
		h.mu.Unlock()
		return false
	}
	h.nodes = append(h.nodes, node)
	h.mu.Unlock()
	h.watch(node)
	return true
}

// watch has the lock lost with the node that tips it.
func (h *quorumHold) watch(node *Lock) {
	context.AfterFunc(node.Context(), func() {
		h.mu.Lock()
		few := h.live() < h.q.majority
		h.mu.Unlock()
		var lost *LostError
		if few && errors.As(context.Cause(node.Context()), &lost) {
			h.lose(lost.Reason)
		}
		h.check() // without it the majority may end sooner
	})
}

// live counts the nodes whose locks are not lost; h.mu is held.
func (h *quorumHold) live() (n int) {
	for _, node := range h.nodes {
		if node.Context().Err() == nil {
			n++
		}
	}
	return n
}

// Fences are none: there is no token that grows across databases.
func (h *quorumHold) Fences() []Fence { return nil }

// ValidUntil is until when a majority of the nodes may be trusted, less the drift. Their heartbeats move it.
func (h *quorumHold) ValidUntil() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, _ := h.validUntil()
	return until
}

// validUntil tells also why it ends then; h.mu is held.
func (h *quorumHold) validUntil() (time.Time, Reason) {
	type nodeEnd struct {
		until time.Time
		why   Reason
	}
	var ends []nodeEnd
	for _, node := range h.nodes {
		if node.Context().Err() == nil {
			until, why := node.validUntil()
			ends = append(ends, nodeEnd{until, why})
		}
	}
	if len(ends) < h.q.majority {
		return time.Time{}, Expired
	}
	slices.SortFunc(ends, func(a, b nodeEnd) int { return b.until.Compare(a.until) })
	tips := ends[h.q.majority-1]
	end := tips.until.Add(-h.q.drift(0))
	if !h.until.IsZero() && !h.until.After(end) {
		return h.until, Ended
	}
	return end, tips.why
}

// check loses the lock when its time is up, and comes back when it may be.
func (h *quorumHold) check() {
	h.mu.Lock()
	if h.why != "" {
		h.mu.Unlock()
		return
	}
	if h.timer != nil {
		h.timer.Stop()
	}
	until, why := h.validUntil()
	now := h.q.clock.Now()
	valid := !until.IsZero() && !clock.Past(now, until)
	if valid {
		h.timer = h.q.clock.AfterFunc(until.Sub(now), h.check)
	}
	h.mu.Unlock()
	if !valid && !until.IsZero() { // without a majority the node that tipped it tells
		h.lose(why)
	}
}

// ExpireIn ends the lock d from now, on a majority of the nodes at least. The local end moves in before anything is
// sent, and out only after a majority has confirmed it.
func (h *quorumHold) ExpireIn(ctx context.Context, d time.Duration) error {
	select {
	case h.moving <- struct{}{}:
		defer func() { <-h.moving }()
	case <-ctx.Done():
		return fmt.Errorf("%w: another call moves the end of %q: nothing was written: %w", ErrBusy, h.key, context.Cause(ctx))
	}
	before, until, nodes, err := h.moveIn(d)
	if err != nil {
		return err
	}
	h.check()
	errs := h.q.each(ctx, nodes, func(ctx context.Context, node *Lock) error { return node.ExpireIn(ctx, d) })
	agreed, doubtful := 0, false
	for _, err := range errs {
		if err == nil {
			agreed++
		}
		doubtful = doubtful || err == nil || errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, errNodeTimeout)
	}
	h.mu.Lock()
	why := h.why
	if why == "" && h.live() < h.q.majority {
		why = Stolen
	}
	switch {
	case why != "":
	case agreed >= h.q.majority:
		h.until = until
	case doubtful: // nodes may end it then, at any time
		h.most = until
	default:
		h.until = before
	}
	h.mu.Unlock()
	h.check()
	switch {
	case why != "":
		return &LostError{h.key, why}
	case agreed >= h.q.majority:
		return nil
	case doubtful:
		return fmt.Errorf("%w: the end of %q: %d nodes have agreed, and %d are needed: %v",
			ErrOutcomeUnknown, h.key, agreed, h.q.majority, errors.Join(errs...))
	}
	return fmt.Errorf("%w: the end of %q: %v", ErrUnavailable, h.key, errors.Join(errs...))
}

// moveIn moves the local end in for calls that are about to be sent. It returns the end so far, the one that holds once
// the nodes have confirmed it, and the nodes.
func (h *quorumHold) moveIn(d time.Duration) (before, until time.Time, nodes []*Lock, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why != "" {
		return before, until, nil, &LostError{h.key, h.why}
	}
	before, until = h.until, h.q.clock.Now().Add(d-h.q.drift(d))
	if !h.most.IsZero() && until.After(h.most) {
		until = h.most
	}
	if before.IsZero() || until.Before(before) {
		h.until = until
	}
	return before, until, slices.Clone(h.nodes), nil
}

// stop ends the lock for this process, once; false if it had ended before.
func (h *quorumHold) stop(why Reason) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why != "" {
		return false
	}
	h.why = why
	if h.timer != nil {
		h.timer.Stop()
	}
	return true
}

func (h *quorumHold) lose(why Reason) {
	if !h.stop(why) {
		return
	}
	h.tell(why)
	if lost := h.q.o.Observer.Lost; lost != nil {
		lost(h.key, h.q.clock.Now().Sub(h.began), why)
	}
}

// Release gives the lock back on all nodes.
func (h *quorumHold) Release(ctx context.Context, lost bool) {
	h.stop(Released)
	h.q.releaseAll(ctx, h.nodes) // nobody joins any more
	if released := h.q.o.Observer.Released; released != nil && !lost {
		released(h.key, h.q.clock.Now().Sub(h.began))
	}
	h.q.drop(h)
}

// drop forgets a lock that nobody uses any more.
func (q *Quorum) drop(h *quorumHold) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.holds, h)
	if q.empty != nil && len(q.holds) == 0 {
		select {
		case <-q.empty:
		default:
			close(q.empty)
		}
	}
}

// releaseAll gives back what nodes have granted. One that does not answer in time goes on doing so in the background.
func (q *Quorum) releaseAll(ctx context.Context, nodes []*Lock) {
	q.each(context.WithoutCancel(ctx), nodes, func(ctx context.Context, node *Lock) error { return node.Release(ctx) })
}

// each calls f for all nodes at once, and waits for NodeTimeout at most; the others' errors are errNodeTimeout then.
func (q *Quorum) each(ctx context.Context, nodes []*Lock, f func(context.Context, *Lock) error) []error {
	type result struct {
		i   int
		err error
	}
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	timer := q.clock.AfterFunc(q.o.NodeTimeout, func() {
		close(over)
		cancel(errNodeTimeout)
	})
	results := make(chan result, len(nodes))
	errs := make([]error, len(nodes))
	var work sync.WaitGroup
	for i, node := range nodes {
		errs[i] = errNodeTimeout
		work.Add(1)
		q.tasks.Go(func() {
			defer work.Done()
			results <- result{i, f(ctx, node)}
		})
	}
	q.tasks.Go(func() {
		work.Wait()
		timer.Stop()
		cancel(nil)
	})
	for range nodes {
		select {
		case r := <-results:
			errs[r.i] = r.err
		case <-over:
			return errs
		}
	}
	return errs
}
