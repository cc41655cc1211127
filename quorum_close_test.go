package dblock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/root"
)

// promptNode grants each key at once. until is when its locks end.
type promptNode struct {
	until func() time.Time
	_     int // so that no two have the same address
}

func (n *promptNode) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	return n.TryAcquire(ctx, key, opts...)
}

func (n *promptNode) TryAcquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	r, err := root.NewRequest(key, opts)
	if err != nil {
		return nil, err
	}
	lock, _ := root.NewLock(context.WithoutCancel(ctx), n, r, promptHold{n.until})
	return lock, nil
}

func (n *promptNode) Caps() dblock.Caps           { return dblock.Caps{MaxHold: true, Durable: true} }
func (n *promptNode) Close(context.Context) error { return nil }

type promptHold struct{ until func() time.Time }

func (promptHold) Fences() []dblock.Fence                        { return nil }
func (h promptHold) ValidUntil() time.Time                       { return h.until() }
func (promptHold) ExpireIn(context.Context, time.Duration) error { return nil }
func (promptHold) Check()                                        {}
func (promptHold) Release(context.Context, bool) error           { return nil }

func quorumOfPrompt(t *testing.T, until func() time.Time) *dblock.Quorum {
	t.Helper()
	nodes := []dblock.Locker{&promptNode{until: until}, &promptNode{until: until}, &promptNode{until: until}}
	q, err := dblock.NewQuorum(nodes, dblock.QuorumOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestQuorumMayLoseALockAtOnce: a lock that ends while it is being granted, as in a process that
// stands still, ends no process.
func TestQuorumMayLoseALockAtOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	reads := 0
	until := func() time.Time { // the first look at each node sees an hour, later ones see that it is over
		mu.Lock()
		defer mu.Unlock()
		if reads++; reads > 3 {
			return time.Now().Add(-time.Second)
		}
		return time.Now().Add(time.Hour)
	}
	q := quorumOfPrompt(t, until)
	if lock, err := q.TryAcquire(t.Context(), "k"); err == nil {
		<-lock.Context().Done()
	}
}

// TestQuorumClosesBesideAcquisitions: each acquisition beside a Close is refused, or its lock has
// ended.
func TestQuorumClosesBesideAcquisitions(t *testing.T) {
	t.Parallel()
	for range 200 {
		q := quorumOfPrompt(t, func() time.Time { return time.Now().Add(time.Hour) })
		var calls sync.WaitGroup
		for i := range 40 {
			calls.Go(func() {
				if lock, err := q.TryAcquire(context.Background(), fmt.Sprint(i)); err == nil {
					_ = lock.Release(context.Background())
				}
			})
		}
		calls.Go(func() { _ = q.Close(context.Background()) })
		calls.Wait()
	}
}

// TestQuorumForgetsLocksWhoseTimeIsUp: Close waits for no lock whose time is up, though it was not
// released, and though it was lost before.
func TestQuorumForgetsLocksWhoseTimeIsUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		nodes time.Duration // for which they hold the lock
		end   dblock.Option
	}{
		"its end":        {time.Hour, dblock.WithoutRenewal(10 * time.Millisecond)},
		"lost before it": {50 * time.Millisecond, dblock.WithMaxHold(time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var until time.Time
			granted := false
			q := quorumOfPrompt(t, func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				if now := time.Now(); !granted && until.Before(now) { // on a slow machine they grant it again
					until = now.Add(c.nodes)
				}
				return until
			})
			lock, err := q.Acquire(t.Context(), "k", c.end)
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			granted = true
			mu.Unlock()
			<-lock.Context().Done()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := q.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}
