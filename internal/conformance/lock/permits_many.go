package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// manyPermitsTakeLittleTime acquires and releases as many permits as there may be, beside other locks. The fastest of a
// few rounds counts: each may meet a busy machine.
func manyPermitsTakeLittleTime(t *testing.T, v *env) {
	const ttl, others, rounds = 10 * time.Second, 100, 5
	const most = ttl / 10
	l, next := v.process(t, LeaseOptions{TTL: ttl}), v.process(t, LeaseOptions{TTL: ttl})
	var kept []*dblock.Lock
	for i := range others {
		kept = append(kept, suite.Acquire(t, l, fmt.Sprint("other ", i)))
	}
	all := dblock.WithPermits(dblock.MaxPermits, dblock.MaxPermits)
	var acquired, released, again time.Duration
	for round := 0; round == 0 || round < rounds && max(acquired, released, again) > most; round++ {
		began := time.Now()
		lock := suite.Acquire(t, l, "k", all)
		acquired = shorter(round, acquired, time.Since(began))
		began = time.Now()
		suite.Release(t, lock)
		released = shorter(round, released, time.Since(began))
		began = time.Now()
		lock = suite.Acquire(t, next, "k", all)
		again = shorter(round, again, time.Since(began))
		suite.Release(t, lock)
	}
	t.Logf("%d permits: acquired in %v, released in %v, by the next process in %v", dblock.MaxPermits, acquired, released, again)
	for what, took := range map[string]time.Duration{"acquired": acquired, "released": released, "acquired after that": again} {
		if took > most {
			t.Errorf("%d permits were %s in %v", dblock.MaxPermits, what, took)
		}
	}
	for _, lock := range kept {
		if lock.Context().Err() != nil {
			t.Fatalf("another lock: %v", context.Cause(lock.Context()))
		}
		suite.Release(t, lock)
	}
}

func shorter(round int, a, b time.Duration) time.Duration {
	if round == 0 {
		return b
	}
	return min(a, b)
}
