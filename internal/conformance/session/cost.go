package session

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// sessionsCostFewRoundTrips counts what calls send: one statement to take a lock, to be refused one, to give one back, and to
// share one that the process has already.
func sessionsCostFewRoundTrips(t *testing.T, s *env) {
	var dialer faultconn.Dialer
	l := s.processOn(t, &dialer, SessionOptions{IdleTimeout: time.Hour})
	other := s.process(t, SessionOptions{})
	for range 2 { // statements are prepared
		suite.Release(t, suite.Acquire(t, l, "k"))
		suite.Release(t, suite.Acquire(t, other, "k"))
	}
	least, trips := suite.LeastTrips(&dialer)
	for range 5 { // something may go on beside it, once or twice
		var lock, second *dblock.Lock
		trips("take", func() { lock = suite.Acquire(t, l, "k") })
		trips("give back", func() { suite.Release(t, lock) })

		theirs := suite.Acquire(t, other, "k")
		trips("refused", func() { _, _ = l.TryAcquire(t.Context(), "k") })
		suite.Release(t, theirs)

		lock = suite.Acquire(t, l, "k")
		trips("refused here", func() { _, _ = l.TryAcquire(t.Context(), "k") })
		suite.Release(t, lock)
		if !l.Caps().Shared {
			continue
		}
		trips("read", func() { lock = suite.Acquire(t, l, "k", dblock.WithShared()) })
		trips("read beside", func() { second = suite.Acquire(t, l, "k", dblock.WithShared()) })
		trips("go before the last", func() { suite.Release(t, lock) })
		trips("go", func() { suite.Release(t, second) })
	}
	want := map[string]int{"take": 1, "give back": 1, "refused": 1, "refused here": 0}
	if l.Caps().Shared {
		want["read"], want["read beside"], want["go before the last"], want["go"] = 1, 1, 1, 1
	}
	if diff := cmp.Diff(want, least); diff != "" {
		t.Errorf("round trips (- wanted, + made):\n%s", diff)
	}
}
