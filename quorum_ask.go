package dblock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// answer is what a node said.
type answer struct {
	lock *Lock
	err  error
}

// asked are the nodes while they are asked for one key.
type asked struct {
	q       *Quorum
	r       Request
	began   time.Time // before anything was sent
	answers chan answer
	left    int // nodes that have not answered
	done    func()
	granted []*Lock
	refused []*HeldError
	failed  []error
}

// ask asks all nodes once, and returns as soon as it is certain what comes of it.
func (q *Quorum) ask(ctx context.Context, r Request) (*Lock, error) {
	if !q.begin() {
		return nil, fmt.Errorf("%w: nothing was sent", ErrClosed)
	}
	defer q.tasks.Done()
	if ctx.Err() != nil {
		return nil, &HeldError{Key: r.Key, Wait: fmt.Errorf("before a server was asked: %w", context.Cause(ctx))}
	}
	a := &asked{q: q, r: r, began: q.clock.Now(), answers: make(chan answer, len(q.nodes)), left: len(q.nodes)}
	late := a.send(ctx)
	for a.undecided() {
		select {
		case x := <-a.answers:
			a.hear(x)
			continue
		case <-late.Done():
			a.failed = append(a.failed, fmt.Errorf("%d nodes: %w", a.left, context.Cause(late)))
		case <-ctx.Done():
		case <-q.ending.Done():
		}
		return nil, a.giveUp(ctx)
	}
	if len(a.granted) < q.majority {
		return nil, a.giveUp(ctx)
	}
	return a.grant(ctx)
}

// begin counts a call among the tasks; false where the Quorum is closed.
func (q *Quorum) begin() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.tasks.Add(1)
	}
	return !q.closed
}

var errNodeTimeout = errors.New("no answer within QuorumOptions.NodeTimeout")

// send asks the nodes. Their calls end at the timeout, which the context tells, and not before: one that is cut short
// would leave a lease in doubt, in others' way until it is cleared up.
func (a *asked) send(ctx context.Context) (late context.Context) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	timer := a.q.clock.AfterFunc(a.q.o.NodeTimeout, func() { cancel(errNodeTimeout) })
	a.done = func() {
		timer.Stop()
		cancel(nil)
	}
	for _, node := range a.q.nodes {
		go func() {
			lock, err := node.TryAcquire(late, a.r.Key, a.r.passedOn()...)
			a.answers <- answer{lock, err}
		}()
	}
	return late
}

// passedOn are the options for the nodes. What is taken once more is taken from the Quorum's own lock.
func (r Request) passedOn() []Option {
	return []Option{func(to *Request) { to.MaxHold, to.Detached, to.Label, to.Data = r.MaxHold, r.Detached, r.Label, r.Data }}
}

// undecided tells whether the nodes that have not answered can make a difference.
func (a *asked) undecided() bool {
	return len(a.granted) < a.q.majority && len(a.granted)+a.left >= a.q.majority
}

func (a *asked) hear(x answer) {
	a.left--
	var held *HeldError
	switch {
	case x.err == nil:
		a.granted = append(a.granted, x.lock)
	case errors.As(x.err, &held) && held.Wait == nil:
		a.refused = append(a.refused, held)
	default:
		a.failed = append(a.failed, x.err)
	}
}

// grant makes the lock of a majority. Nodes that answer later join it.
func (a *asked) grant(ctx context.Context) (*Lock, error) {
	lock, h, err := a.q.hold(ctx, a)
	if err != nil {
		a.failed = append(a.failed, err)
		return nil, a.giveUp(ctx)
	}
	a.later(h.join)
	return lock, nil
}

// giveUp gives back what was granted, and says why the lock was not acquired.
func (a *asked) giveUp(ctx context.Context) error {
	a.later(func(*Lock) bool { return false })
	a.q.releaseAll(ctx, a.granted)
	return a.why(ctx)
}

// later hears the nodes that have not answered in the background: what they grant is given back where it is of no use.
func (a *asked) later(used func(*Lock) bool) {
	left := a.left
	a.q.tasks.Go(func() {
		defer a.done()
		for range left {
			if x := <-a.answers; x.err == nil && !used(x.lock) {
				_ = x.lock.Release(context.Background())
			}
		}
	})
}

// why is the error of a lock that was not acquired.
func (a *asked) why(ctx context.Context) error {
	switch {
	case a.q.ending.Err() != nil:
		return fmt.Errorf("%w: what was granted is given back", ErrClosed)
	case len(a.granted)+len(a.refused) >= a.q.majority && len(a.refused) > 0:
		held := *a.refused[0]
		for _, other := range a.refused {
			if other.Remaining > held.Remaining {
				held = *other
			}
		}
		held.Wait, held.Holder.Token = nil, 0 // that of one database says nothing of the others
		if ctx.Err() != nil {
			held.Wait = context.Cause(ctx)
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
	// The nodes' errors are told and not wrapped: where one of them is in doubt, this call is not.
	text := fmt.Sprintf("lock %q: %d of %d nodes have answered, and %d are needed",
		a.r.Key, len(a.granted)+len(a.refused), len(a.q.nodes), a.q.majority)
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %s: %v: %w", ErrUnavailable, text, errors.Join(a.failed...), context.Cause(ctx))
	}
	return fmt.Errorf("%w: %s: %v", ErrUnavailable, text, errors.Join(a.failed...))
}

// The pauses between two tries of one that waits. They are random, so that of several who took a node each one gets ahead.
const (
	leastWait = 10 * time.Millisecond
	mostWait  = 500 * time.Millisecond
)

// wait asks until the lock is granted.
func (q *Quorum) wait(ctx context.Context, r Request) (*Lock, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(q.ending, func() { stop(context.Cause(q.ending)) })()
	pauses := backoff{least: leastWait, most: mostWait}
	var last error // of a try that the end of the wait did not cut short
	for {
		lock, err := q.ask(ctx, r)
		switch {
		case err == nil || !temporary(err):
			return lock, err
		case ctx.Err() == nil:
			last = err
		case last == nil:
			return nil, err
		}
		if why := sleep(ctx, q.clock, pauses.next()); why != nil {
			return nil, ended(last, why)
		}
	}
}

// ended is the error of the last try of a wait, with what ended that.
func ended(last, why error) error {
	var held *HeldError
	switch {
	case errors.Is(why, ErrClosed):
		return why
	case errors.As(last, &held):
		told := *held
		told.Wait = why
		return &told
	}
	return fmt.Errorf("%w; the wait ended: %w", last, why)
}
