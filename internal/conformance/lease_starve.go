package conformance

import (
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	crowdedProcesses = 8
	crowdedCallers   = 25 // of each
	crowdedRounds    = 2
)

// nobodyStarves has the callers of several processes want one key again and again, without tickets: none waits for
// much longer than most.
func nobodyStarves(t *testing.T, v *vault) {
	var mu sync.Mutex
	var waits []time.Duration
	var crowd sync.WaitGroup
	var processes []Leases
	for range crowdedProcesses {
		processes = append(processes, v.process(t, LeaseOptions{Poll: time.Second}))
	}
	held := acquire(t, processes[0], "k")
	for _, l := range processes {
		for range crowdedCallers {
			crowd.Go(func() {
				for range crowdedRounds {
					began := time.Now()
					lock := acquire(t, l, "k")
					mu.Lock()
					waits = append(waits, time.Since(began))
					mu.Unlock()
					release(t, lock)
				}
			})
		}
	}
	for _, _, waiters := v.Rows(t); waiters < crowdedProcesses-1; _, _, waiters = v.Rows(t) {
		time.Sleep(time.Millisecond)
	}
	release(t, held)
	crowd.Wait()
	slices.Sort(waits)
	median, most := waits[len(waits)/2], waits[len(waits)-1]
	t.Logf("%d waits: median %v, at most %v, %.1f times as long", len(waits), median, most, float64(most)/float64(median))
	if most > 5*median {
		t.Errorf("one waited for %v, the median is %v", most, median)
	}
}
