package lock

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// fairCrowdIsExclusive has many callers of one process try one key of a fair Locker while its holder releases it. Their
// calls share statements. At most one of them may hold the key at a time.
func fairCrowdIsExclusive(t *testing.T, p Place) {
	const rounds, callers = 10, 16
	l := p.process(t, LeaseOptions{Fair: true})
	overlaps := 0
	var fenced atomic.Int64
	for range rounds {
		held := suite.Acquire(t, l, "k")
		var holders, most atomic.Int64
		var crowd sync.WaitGroup
		start := make(chan struct{})
		for range callers {
			crowd.Go(func() {
				<-start
				lock, err := l.TryAcquire(suite.Soon(t), "k")
				if err != nil {
					suite.IsHeld(t, err, "k")
					return
				}
				n := holders.Add(1)
				for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
				}
				if err := p.Check(t.Context(), l, lock); err != nil {
					fenced.Add(1)
				}
				holders.Add(-1)
				suite.Release(t, lock)
			})
		}
		close(start)
		suite.Release(t, held)
		crowd.Wait()
		if most.Load() > 1 {
			overlaps++
		}
	}
	if overlaps > 0 {
		t.Errorf("several callers held the key at once in %d of %d rounds", overlaps, rounds)
	}
	if n := fenced.Load(); n > 0 {
		t.Errorf("a guard refused %d locks that were just acquired", n)
	}
}

// fairCrowdIsServed has several callers of one process wait for a key that has no row yet. Each of them is served, and
// no outcome is unknown.
func fairCrowdIsServed(t *testing.T, p Place) {
	const rounds, callers = 4, 5
	l := p.process(t, LeaseOptions{Fair: true})
	for round := range rounds {
		key := fmt.Sprint("fresh", round)
		var crowd sync.WaitGroup
		start := make(chan struct{})
		for range callers {
			crowd.Go(func() {
				<-start
				lock, err := l.Acquire(suite.Soon(t), key)
				if err != nil {
					t.Errorf("round %d: unknown %v: %v", round, errors.Is(err, dblock.ErrOutcomeUnknown), err)
					return
				}
				suite.Release(t, lock)
			})
		}
		close(start)
		crowd.Wait()
	}
}
