package dblock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/root"
)

// endNode grants everything for an hour, and does to ExpireIn what a test says.
type endNode struct {
	expire func() error
}

func (n *endNode) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	return n.TryAcquire(ctx, key, opts...)
}

func (n *endNode) TryAcquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	r, err := root.NewRequest(key, opts)
	if err != nil {
		return nil, err
	}
	lock, _ := root.NewLock(ctx, n, r, endHold{n, time.Now().Add(time.Hour)})
	return lock, nil
}

func (n *endNode) Caps() dblock.Caps           { return dblock.Caps{MaxHold: true, Durable: true} }
func (n *endNode) Close(context.Context) error { return nil }

// endHold is what an endNode has granted.
type endHold struct {
	n     *endNode
	until time.Time
}

func (h endHold) Fences() []dblock.Fence                        { return nil }
func (h endHold) ValidUntil() time.Time                         { return h.until }
func (h endHold) ExpireIn(context.Context, time.Duration) error { return h.n.expire() }
func (h endHold) Check()                                        {}
func (h endHold) Release(context.Context, bool) error           { return nil }

// onEndNodes runs f with a lock of three endNodes.
func onEndNodes(t *testing.T, expire func() error, f func(t *testing.T, lock *dblock.Lock)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var nodes []dblock.Locker
		for range 3 {
			nodes = append(nodes, &endNode{expire})
		}
		q, err := dblock.NewQuorum(nodes, dblock.QuorumOptions{NodeTimeout: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		lock := get(t, q, "k")
		synctest.Wait() // the third node joins
		f(t, lock)
		_ = lock.Release(t.Context())
		if err := q.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Without an answer of a majority the nodes may have ended the lock: it ends, and no later call
// moves that end out.
func TestQuorumExpireInWithoutAnAnswer(t *testing.T) {
	for name, why := range map[string]error{"unknown": dblock.ErrOutcomeUnknown, "silent": nil} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			expire := func() error {
				if calls.Add(1) > 3 {
					return nil
				}
				if why == nil {
					time.Sleep(time.Second)
				}
				return why
			}
			onEndNodes(t, expire, func(t *testing.T, lock *dblock.Lock) {
				began := time.Now()
				if err := lock.ExpireIn(t.Context(), 5*time.Second); !errors.Is(err, dblock.ErrOutcomeUnknown) {
					t.Errorf("without an answer: %v", err)
				}
				if err := lock.ExpireIn(t.Context(), time.Minute); err != nil {
					t.Error(err)
				}
				if until := lock.ValidUntil(); until.After(began.Add(5 * time.Second)) {
					t.Errorf("valid for %v", until.Sub(began))
				}
				isLost(t, lock, dblock.ReasonTimeUp)
			})
		})
	}
}

// lateNode grants a lock for an hour once it may, and counts the releases.
type lateNode struct {
	endNode
	may      chan struct{}
	released atomic.Int32
}

func (n *lateNode) TryAcquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	<-n.may
	r, err := root.NewRequest(key, opts)
	if err != nil {
		return nil, err
	}
	lock, _ := root.NewLock(ctx, n, r, lateHold{endHold{&n.endNode, time.Now().Add(time.Hour)}, n})
	return lock, nil
}

type lateHold struct {
	endHold
	n *lateNode
}

func (h lateHold) Release(context.Context, bool) error {
	h.n.released.Add(1)
	return nil
}

// A node that grants the lock after ExpireIn has no end of its own. It is released at the end.
func TestQuorumExpireInReleasesLateNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		expires := func() error { return nil }
		late := &lateNode{endNode: endNode{expires}, may: make(chan struct{})}
		nodes := []dblock.Locker{&endNode{expires}, &endNode{expires}, late}
		q, err := dblock.NewQuorum(nodes, dblock.QuorumOptions{NodeTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		lock := get(t, q, "k")
		if err := lock.ExpireIn(t.Context(), 5*time.Second); err != nil {
			t.Error(err)
		}
		close(late.may)
		<-lock.Context().Done()
		synctest.Wait()
		if n := late.released.Load(); n != 1 {
			t.Errorf("the late node was released %d times, want once", n)
		}
		if err := q.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// losingNode notes the ends that it is asked for, and can lose its lock.
type losingNode struct {
	endNode
	holds []*time.Duration // WithMaxHold, of each request
	lose  func(dblock.Reason)
}

func (n *losingNode) TryAcquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	r, err := root.NewRequest(key, opts)
	if err != nil {
		return nil, err
	}
	n.holds = append(n.holds, r.MaxHold)
	lock, lose := root.NewLock(ctx, n, r, endHold{&n.endNode, time.Now().Add(time.Hour)})
	n.lose = lose
	return lock, nil
}

// A node that is regained after ExpireIn has no end, as a later call could not move it out. The end
// of WithMaxHold it has.
func TestQuorumRegainsNodesWithoutTheEndOfExpireIn(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]dblock.Option{"no end": nil, "an end": {dblock.WithMaxHold(time.Hour)}} {
		synctest.Test(t, func(t *testing.T) {
			expires := func() error { return nil }
			losing := &losingNode{endNode: endNode{expires}}
			q, err := dblock.NewQuorum([]dblock.Locker{losing, &endNode{expires}, &endNode{expires}}, dblock.QuorumOptions{})
			if err != nil {
				t.Fatal(err)
			}
			lock, err := q.Acquire(t.Context(), "k", opts...)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := lock.ExpireIn(t.Context(), time.Minute); err != nil {
				t.Error(err)
			}
			losing.lose(dblock.ReasonExpired)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			switch {
			case len(losing.holds) != 2:
				t.Fatalf("%s: the node was asked %d times, want twice", name, len(losing.holds))
			case opts == nil && losing.holds[1] != nil:
				t.Errorf("%s: the node was regained for %v", name, *losing.holds[1])
			case opts != nil && (losing.holds[1] == nil || *losing.holds[1] < 50*time.Minute):
				t.Errorf("%s: the node was not regained for the rest of an hour", name)
			}
			if err := errors.Join(lock.Release(t.Context()), q.Close(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
}

// The first of two calls is answered last: the lock ends no later than its nodes.
func TestQuorumExpireInTwoAtOnce(t *testing.T) {
	var calls atomic.Int32
	expire := func() error {
		if calls.Add(1) <= 3 {
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	}
	onEndNodes(t, expire, func(t *testing.T, lock *dblock.Lock) {
		ended := make(chan error, 2)
		for _, d := range []time.Duration{time.Minute, 5 * time.Second} {
			go func() { ended <- lock.ExpireIn(t.Context(), d) }()
			synctest.Wait()
		}
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if left := time.Until(lock.ValidUntil()); left > 5*time.Second {
			t.Errorf("valid for %v", left)
		}
	})
}

// Nothing was written on any node: the end is what it was.
func TestQuorumExpireInRefused(t *testing.T) {
	onEndNodes(t, func() error { return dblock.ErrBusy }, func(t *testing.T, lock *dblock.Lock) {
		before := lock.ValidUntil()
		if err := lock.ExpireIn(t.Context(), 5*time.Second); !errors.Is(err, dblock.ErrUnavailable) || !lock.ValidUntil().Equal(before) {
			t.Errorf("%v, valid until %v, before %v", err, lock.ValidUntil(), before)
		}
	})
}
