package lock

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
)

const (
	crowdedProcesses = 8
	crowdedCallers   = 25 // of each
	crowdedRounds    = 2
)

// nobodyStarves has the callers of several processes want one key again and again, without tickets: none waits for
// much longer than most. Which process comes next is chance, and the machine may be busy: so it may try again.
func nobodyStarves(t *testing.T, v *env) {
	const tries = 3
	for n := 1; ; n++ {
		median, most := v.crowded(t, fmt.Sprint("k", n))
		t.Logf("median %v, at most %v, %.1f times as long", median, most, float64(most)/float64(median))
		if most <= 5*median {
			return
		}
		if n == tries {
			t.Errorf("one waited for %v, the median is %v", most, median)
			return
		}
	}
}

// crowded tells for how long callers waited for a key that all of them want.
func (v *env) crowded(t *testing.T, key string) (median, most time.Duration) {
	var mu sync.Mutex
	var waits []time.Duration
	var crowd sync.WaitGroup
	var processes []Leases
	for range crowdedProcesses {
		processes = append(processes, v.process(t, LeaseOptions{Poll: time.Second}))
	}
	held := suite.Acquire(t, processes[0], key)
	for _, l := range processes {
		for range crowdedCallers {
			crowd.Go(func() {
				for range crowdedRounds {
					began := time.Now()
					lock := suite.Acquire(t, l, key)
					mu.Lock()
					waits = append(waits, time.Since(began))
					mu.Unlock()
					suite.Release(t, lock)
				}
			})
		}
	}
	waiting := fmt.Sprintf("SELECT COUNT(*) FROM dblock_lease_waiter WHERE lease_key = '%s'", key)
	for v.count(t, waiting) < crowdedProcesses-1 {
		time.Sleep(time.Millisecond)
	}
	suite.Release(t, held)
	crowd.Wait()
	slices.Sort(waits)
	return waits[len(waits)/2], waits[len(waits)-1]
}
