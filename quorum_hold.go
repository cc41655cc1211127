package dblock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/ctxerr"
)

// quorumHold is a lock that a majority of nodes has granted.
type quorumHold struct {
	q          *Quorum
	ctx        context.Context // of the caller, without its end
	waiter     *quorumWaiter
	key        string
	began      time.Time
	notifyLost func(Reason) // the Lock, that it is lost; nil: there is none yet

	moving      chan struct{} // of capacity one: the call that moves the end
	releaseOnce sync.Once

	mu          sync.Mutex
	nodes       []*Lock       // what each node has granted; nil: nothing.
	waits       []bool        // for which nodes' answers.
	latestEnd   time.Time     // no later end is possible: WithMaxHold less the drift, or an ExpireIn without an answer; zero: none.
	until       time.Time     // its end, regardless of heartbeats; zero: none.
	slack       time.Duration // by how much earlier that is than the nodes' own end.
	timer       clock.Timer
	rejoinTimer clock.Timer // asks the nodes that are missing; nil: that is not planned
	pauses      backoff     // between these
	unhook      []func() bool
	why         Reason      // why it has ended, lost or released; empty: it has not
	next        *quorumHold // what it was handed off as; nil: it was not
}

var errTooSlow = errors.New("what the nodes granted was over before a majority had answered")

func (q *Quorum) newHold(ctx context.Context, w *quorumWaiter, nodes []*Lock, waits []bool) *quorumHold {
	return &quorumHold{
		q: q, ctx: context.WithoutCancel(ctx), waiter: w, key: w.request.Key, began: q.clock.Now(), nodes: nodes, waits: waits,
		moving: make(chan struct{}, 1), pauses: backoff{least: leastRejoin, max: maxRejoin},
	}
}

// start makes the Lock of a hold.
func (h *quorumHold) start(ctx context.Context) (*Lock, error) {
	if !h.ValidUntil().After(h.q.clock.Now()) {
		return nil, errTooSlow
	}
	lock, notify := newLock(ctx, h.q, h.waiter.request, h)
	h.q.mu.Lock()
	if h.q.closed {
		h.q.mu.Unlock()
		return nil, ErrClosed
	}
	h.q.holds[h] = struct{}{}
	h.mu.Lock() // before Close can lose it
	h.q.mu.Unlock()
	h.notifyLost = notify
	for _, node := range h.nodes {
		if node != nil {
			h.watch(node)
		}
	}
	h.planRejoin()
	h.mu.Unlock()
	h.check()
	return lock, nil
}

// successor makes the hold of the next waiter from one that was released; nil if too few nodes
// are left.
func (h *quorumHold) successor(next *quorumWaiter) *quorumHold {
	h.mu.Lock()
	defer h.mu.Unlock()
	if until, _ := h.validUntil(); !h.until.IsZero() || !until.After(h.q.clock.Now()) {
		return nil
	}
	h.next = h.q.newHold(next.ctx, next, h.nodes, h.waits)
	h.nodes = nil // what comes later joins the next one
	return h.next
}

// drift is by how much earlier than its nodes a lock ends that lasts for d.
func (q *Quorum) drift(d time.Duration) time.Duration {
	if q.o.Drift > 0 {
		return q.o.Drift
	}
	return d/100 + 2*time.Millisecond
}

// watch has the lock lost with the node that tips it; h.mu is held.
func (h *quorumHold) watch(node *Lock) {
	h.unhook = append(h.unhook, context.AfterFunc(node.Context(), func() {
		h.mu.Lock()
		few := h.live() < h.q.majority
		h.planRejoin()
		h.mu.Unlock()
		var lost *LostError
		if few && errors.As(context.Cause(node.Context()), &lost) {
			h.lose(lost.Reason)
		}
		h.check() // without it the majority may end sooner
	}))
}

// live counts the nodes whose locks are not lost; h.mu is held.
func (h *quorumHold) live() (n int) {
	for i := range h.nodes {
		if !h.misses(i) {
			n++
		}
	}
	return n
}

// Fences are none: there is no token that grows across databases.
func (h *quorumHold) Fences() []Fence { return nil }

// ValidUntil is until when a majority of the nodes may be trusted, less the drift. Their heartbeats
// move it.
func (h *quorumHold) ValidUntil() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, _ := h.validUntil()
	return until
}

// validUntil also returns why it ends then; h.mu is held.
func (h *quorumHold) validUntil() (time.Time, Reason) {
	type nodeEnd struct {
		until time.Time
		why   Reason
	}
	var ends []nodeEnd
	for i, node := range h.nodes {
		if !h.misses(i) {
			until, why := node.validUntil()
			ends = append(ends, nodeEnd{until, why})
		}
	}
	if len(ends) < h.q.majority {
		return time.Time{}, ReasonExpired
	}
	slices.SortFunc(ends, func(a, b nodeEnd) int { return b.until.Compare(a.until) })
	tips := ends[h.q.majority-1]
	end := tips.until.Add(-h.q.drift(0))
	if !h.until.IsZero() && !h.until.After(end) {
		return h.until, ReasonTimeUp
	}
	return end, tips.why
}

// Check loses the lock if its time is up.
func (h *quorumHold) Check() { h.check() }

// check loses the lock when its time is up, and comes back when it may be.
func (h *quorumHold) check() {
	h.mu.Lock()
	if h.why != "" || h.notifyLost == nil { // start calls it
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
	if !valid && !until.IsZero() { // without a majority the node that tipped it is the reason
		h.lose(why)
	}
}

// ExpireIn ends the lock d from now, on a majority of the nodes at least. The local end moves in
// before anything is sent, and out only after a majority has confirmed it.
func (h *quorumHold) ExpireIn(ctx context.Context, d time.Duration) error {
	select {
	case h.moving <- struct{}{}:
		defer func() { <-h.moving }()
	case <-ctx.Done():
		return fmt.Errorf("%w: another call moves the end of %q: nothing was written: %w", ErrBusy, h.key, ctxerr.Of(ctx))
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
		why = ReasonStolen
	}
	switch {
	case why != "":
	case agreed >= h.q.majority:
		h.until, h.slack = until, h.q.drift(d)
	case doubtful: // nodes may end it then, at any time
		h.latestEnd = until
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

// moveIn moves the local end in for calls that are about to be sent. It returns the end so far, the
// one that holds once the nodes have confirmed it, and the nodes.
func (h *quorumHold) moveIn(d time.Duration) (before, until time.Time, nodes []*Lock, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why != "" {
		return before, until, nil, &LostError{h.key, h.why}
	}
	before, until = h.until, h.q.clock.Now().Add(d-h.q.drift(d))
	if !h.latestEnd.IsZero() && until.After(h.latestEnd) {
		until = h.latestEnd
	}
	if before.IsZero() || until.Before(before) {
		h.until = until
	}
	return before, until, present(h.nodes), nil
}

// stop ends the lock for this process, once; false if it had ended before.
func (h *quorumHold) stop(why Reason) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why != "" {
		return false
	}
	h.why = why
	for _, timer := range []clock.Timer{h.timer, h.rejoinTimer} {
		if timer != nil {
			timer.Stop()
		}
	}
	for _, unhook := range h.unhook {
		unhook()
	}
	return true
}

// lose ends a lock that is lost.
func (h *quorumHold) lose(why Reason) {
	if !h.stop(why) {
		return
	}
	h.notifyLost(why)
	h.q.dequeue(h.waiter)
	h.releaseWhenTimeUp()
	if lost := h.q.o.Observer.Lost; lost != nil {
		lost(h.key, h.q.clock.Now().Sub(h.began), why)
	}
}

// releaseWhenTimeUp releases what the nodes have granted of a lock that is lost, when its time is
// up: it needs no Release then. A node that joined late, or did not answer to ExpireIn, has no end.
func (h *quorumHold) releaseWhenTimeUp() {
	h.mu.Lock()
	until := h.until
	h.mu.Unlock()
	if until.IsZero() {
		return
	}
	release := func() {
		h.q.mu.Lock()
		defer h.q.mu.Unlock()
		if _, kept := h.q.holds[h]; kept { // so Close has not done
			h.q.tasks.Go(func() { h.releaseAll(context.Background()) })
		}
	}
	if now := h.q.clock.Now(); clock.Past(now, until) {
		release()
	} else {
		h.q.clock.AfterFunc(until.Sub(now), release)
	}
}

// Release hands the lock off to the next caller of this process, or releases it on all nodes. If
// a majority of them did not have it any more, it was lost.
func (h *quorumHold) Release(ctx context.Context, _ bool) error {
	held := h.stop(ReasonReleased)
	handed := held && h.q.handOff(h)
	stolen := false
	if !handed {
		stolen = h.releaseAll(ctx) && held
	}
	if held && !handed {
		h.q.released(h.waiter)
	}
	lasted, o := h.q.clock.Now().Sub(h.began), &h.q.o.Observer
	if stolen {
		h.notifyLost(ReasonStolen)
	}
	h.q.drop(h)
	switch {
	case stolen && o.Lost != nil:
		o.Lost(h.key, lasted, ReasonStolen)
	case held && !stolen && o.Released != nil:
		o.Released(h.key, lasted)
	}
	return nil
}

// releaseAll releases what the nodes have granted, once, and forgets a hold that has ended. few is
// true if no majority of the nodes had it still.
func (h *quorumHold) releaseAll(ctx context.Context) (few bool) {
	h.releaseOnce.Do(func() {
		h.mu.Lock()
		nodes := present(h.nodes) // none joins any more
		h.mu.Unlock()
		few = len(nodes)-h.q.releaseAll(ctx, nodes) < h.q.majority
		h.q.drop(h)
	})
	return few
}

// drop forgets a lock that no caller uses any more.
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

// releaseAll releases what nodes have granted, and counts those that had lost it. One that does
// not answer in time goes on doing so in the background.
func (q *Quorum) releaseAll(ctx context.Context, nodes []*Lock) (lost int) {
	errs := q.each(context.WithoutCancel(ctx), nodes, func(ctx context.Context, node *Lock) error { return node.Release(ctx) })
	for _, err := range errs {
		if errors.Is(err, ErrLost) {
			lost++
		}
	}
	return lost
}
