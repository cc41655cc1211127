package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// manyPermitsTakeLittleTime acquires and releases as many permits as there may be, beside other locks, which stay held. A statement that
// takes longer than half of the TTL would have no known outcome.
func manyPermitsTakeLittleTime(t *testing.T, v *env) {
	const ttl, others = 10 * time.Second, 100
	l, next := v.process(t, LeaseOptions{TTL: ttl}), v.process(t, LeaseOptions{TTL: ttl})
	var kept []*dblock.Lock
	for i := range others {
		kept = append(kept, suite.Acquire(t, l, fmt.Sprint("other ", i)))
	}
	all := dblock.WithPermits(dblock.MaxPermits, dblock.MaxPermits)
	suite.Release(t, suite.Acquire(t, l, "k", all))
	suite.Release(t, suite.Acquire(t, next, "k", all))
	for _, lock := range kept {
		if lock.Context().Err() != nil {
			t.Fatalf("another lock: %v", context.Cause(lock.Context()))
		}
		suite.Release(t, lock)
	}
}
