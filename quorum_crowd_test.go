package dblock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

// oneOfThree is a Quorum without its majority: the node that answers first makes the lock.
type oneOfThree struct{ nodes [3]*node }

func (o oneOfThree) Acquire(ctx context.Context, key string, opts ...dblock.Option) (lock *dblock.Lock, err error) {
	for {
		for _, n := range o.nodes {
			if lock, err = n.TryAcquire(ctx, key, opts...); err == nil {
				return lock, nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// crowd has processes work under one key, and returns how often two did so at once.
func (c cluster) crowd(t *testing.T, majority bool) (turns, overlaps int64) {
	t.Helper()
	const processes = 5
	var inside, met, n atomic.Int64
	done := make(chan struct{})
	for i := range processes {
		q, nodes := c.process(t, fmt.Sprint(i), dblock.QuorumOptions{})
		acquire := q.Acquire
		if !majority {
			acquire = oneOfThree{nodes}.Acquire
		}
		go func() {
			defer func() { done <- struct{}{} }()
			for turn := range 20 {
				if i == 0 && turn%3 == 0 {
					nodes[turn%len(nodes)].Fail(dblock.ErrOutcomeUnknown)
				}
				lock, err := acquire(t.Context(), "k")
				if err != nil {
					t.Errorf("told %v", err)
					return
				}
				if inside.Add(1) > 1 {
					met.Add(1)
				}
				n.Add(1)
				time.Sleep(5 * time.Millisecond)
				inside.Add(-1)
				giveBack(t, lock)
			}
		}()
	}
	for range processes {
		<-done
	}
	return n.Load(), met.Load()
}

func TestQuorumServesACrowd(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		if turns, overlaps := c.crowd(t, true); turns != 100 || overlaps != 0 {
			t.Errorf("%d turns, and two at once in %d of them", turns, overlaps)
		}
	})
}

func TestControlOneOfThreeMeets(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		if _, overlaps := c.crowd(t, false); overlaps == 0 {
			t.Error("never two at once: the test with a majority shows nothing")
		}
	})
}
