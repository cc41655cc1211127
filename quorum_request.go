package dblock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/ctxerr"
)

// nodeResult is what a node said.
type nodeResult struct {
	node int
	lock *Lock
	err  error
}

// asked are the nodes while they are asked for one key.
type asked struct {
	q       *Quorum
	w       *quorumWaiter
	r       request
	began   time.Time // before anything was sent
	results chan nodeResult
	pending int // nodes that have not answered
	done    func()
	nodes   []*Lock // what each node has granted; nil: nothing
	waits   []bool  // for which nodes' answers
	granted int
	tokens  []int64 // of each node's holder; 0: it is unknown
	refused []*HeldError
	failed  []error
}

// request asks all nodes once for the first waiter of a queue, and returns as soon as it is certain
// what comes of it.
func (q *Quorum) request(ctx context.Context, w *quorumWaiter) (*Lock, error) {
	r, n := w.request, len(q.nodes)
	if ctx.Err() != nil {
		return nil, &HeldError{Key: r.Key, Wait: fmt.Errorf("before a server was asked: %w", ctxerr.Of(ctx))}
	}
	a := &asked{
		q: q, w: w, r: r, began: q.clock.Now(), results: make(chan nodeResult, n), pending: n,
		nodes: make([]*Lock, n), waits: slices.Repeat([]bool{true}, n), tokens: make([]int64, n),
	}
	late := a.send(ctx)
	for a.undecided() {
		select {
		case x := <-a.results:
			a.note(x)
			continue
		case <-late.Done():
			a.failed = append(a.failed, fmt.Errorf("%d nodes: %w", a.pending, ctxerr.Of(late)))
		case <-ctx.Done():
		case <-q.ending.Done():
		}
		return nil, a.giveUp(ctx)
	}
	if a.granted < q.majority {
		return nil, a.giveUp(ctx)
	}
	return a.grant(ctx)
}

// begin counts a call among the tasks; false if the Quorum is closed.
func (q *Quorum) begin() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.tasks.Add(1)
	}
	return !q.closed
}

var errNodeTimeout = errors.New("no answer within QuorumOptions.NodeTimeout")

// send asks the nodes. Their calls end at the timeout, which is the cause of the context, and not
// before: one that is cut short would leave an unresolved lease, which excludes others until it is
// reconciled.
func (a *asked) send(ctx context.Context) (late context.Context) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	timer := a.q.clock.AfterFunc(a.q.o.NodeTimeout, func() { cancel(errNodeTimeout) })
	a.done = func() {
		timer.Stop()
		cancel(nil)
	}
	for i, node := range a.q.nodes {
		go func() {
			lock, err := node.TryAcquire(late, a.r.Key, passedOn(a.r)...)
			a.results <- nodeResult{i, lock, err}
		}()
	}
	return late
}

// passedOn are the options for the nodes. What is taken once more is taken from the Quorum's own
// lock.
func passedOn(r request) []Option {
	return []Option{func(to *request) { to.MaxHold, to.Detached, to.Label, to.Data = r.MaxHold, r.Detached, r.Label, r.Data }}
}

// undecided reports whether the nodes that have not answered can make a difference.
func (a *asked) undecided() bool {
	return a.granted < a.q.majority && a.granted+a.pending >= a.q.majority
}

func (a *asked) note(x nodeResult) {
	a.pending--
	a.waits[x.node] = false
	var held *HeldError
	switch {
	case x.err == nil:
		a.granted++
		a.nodes[x.node] = x.lock
	case errors.As(x.err, &held) && held.Wait == nil:
		a.refused = append(a.refused, held)
		a.tokens[x.node] = held.Holder.Token
	default:
		a.failed = append(a.failed, x.err)
	}
}

// grant makes the lock of a majority. Nodes that answer later join it.
func (a *asked) grant(ctx context.Context) (*Lock, error) {
	h := a.q.newHold(ctx, a.w, a.nodes, slices.Clone(a.waits))
	if a.r.MaxHold != nil {
		h.slack = a.q.drift(*a.r.MaxHold)
		h.latestEnd = a.began.Add(*a.r.MaxHold - h.slack)
		h.until = h.latestEnd
	}
	lock, err := h.start(ctx)
	if err != nil {
		a.failed = append(a.failed, err)
		return nil, a.giveUp(ctx)
	}
	a.later(func(x nodeResult) { h.answered(x.node, x.lock) })
	return lock, nil
}

// giveUp releases what was granted, and says why the lock was not acquired. It waits for that
// only while ctx lives.
func (a *asked) giveUp(ctx context.Context) error {
	a.later(func(x nodeResult) {
		if x.err == nil {
			_ = x.lock.Release(context.Background())
		}
	})
	back := make(chan struct{})
	a.q.tasks.Go(func() {
		defer close(back)
		a.q.releaseAll(ctx, present(a.nodes))
	})
	select {
	case <-back:
	case <-ctx.Done():
	}
	return a.why(ctx)
}

// later receives the answers of the other nodes in the background.
func (a *asked) later(receive func(nodeResult)) {
	left := a.pending
	a.q.tasks.Go(func() {
		defer a.done()
		for range left {
			receive(<-a.results)
		}
	})
}

// why is the error of a lock that was not acquired.
func (a *asked) why(ctx context.Context) error {
	a.q.saw(a.r.Key, a.tokens)
	switch {
	case a.q.ending.Err() != nil:
		return fmt.Errorf("%w: what was granted is given back", ErrClosed)
	case a.granted+len(a.refused) >= a.q.majority && len(a.refused) > 0:
		held := *a.refused[0]
		for _, other := range a.refused {
			if other.Remaining > held.Remaining {
				held = *other
			}
		}
		held.Wait, held.Holder.Token = nil, 0 // that of one database says nothing of the others
		if ctx.Err() != nil {
			held.Wait = ctxerr.Of(ctx)
		}
		return &held
	}
	lasting := 0
	for _, err := range a.failed {
		if errors.Is(err, ErrDeadlock) {
			return err
		}
		if !temporary(err) && !errors.Is(err, errNodeTimeout) && !errors.Is(err, errTooSlow) {
			lasting++
		}
	}
	if lasting > len(a.q.nodes)-a.q.majority { // no other try would do better
		return errors.Join(a.failed...)
	}
	// The nodes' errors are quoted and not wrapped: if one of them is unresolved, this call is not.
	text := fmt.Sprintf("lock %q: %d of %d nodes have answered, and %d are needed",
		a.r.Key, a.granted+len(a.refused), len(a.q.nodes), a.q.majority)
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %s: %v: %w", ErrUnavailable, text, errors.Join(a.failed...), ctxerr.Of(ctx))
	}
	return fmt.Errorf("%w: %s: %v", ErrUnavailable, text, errors.Join(a.failed...))
}

// present are the nodes' locks that are there.
func present(nodes []*Lock) []*Lock {
	return slices.DeleteFunc(slices.Clone(nodes), func(node *Lock) bool { return node == nil })
}

// each calls f for all nodes at once, and waits for NodeTimeout at most; the others' errors are
// errNodeTimeout then.
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
