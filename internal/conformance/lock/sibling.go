package lock

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// aSiblingOutlivesAnother closes one of two Lockers that share a pool, and so a heartbeat, and closes it again: the other
// one keeps what it holds, and goes on.
func aSiblingOutlivesAnother(t *testing.T, v *env) {
	o := LeaseOptions{TTL: 2 * time.Second, Poll: 50 * time.Millisecond}
	a, b, closePool, err := v.e.OpenPair(t.Context(), v.dsn, &faultconn.Dialer{}, o, o)
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	other := v.process(t, LeaseOptions{})
	suite.Release(t, suite.Acquire(t, other, "joined"))
	given, kept := suite.Acquire(t, a, "given back"), suite.Acquire(t, b, "kept")
	suite.Release(t, given)
	if n := v.count(t, "SELECT count(*) FROM dblock_member"); n != 2 {
		t.Errorf("%d members, want that of both and another process's", n)
	}
	for range 3 {
		if err := a.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	beats(t, kept)
	beats(t, kept)
	_, err = other.TryAcquire(t.Context(), "kept")
	suite.IsHeld(t, err, "kept")
	for _, key := range []string{"given back", "new"} {
		suite.Release(t, suite.Acquire(t, b, key))
	}
	waits := make(chan *dblock.Lock, 1)
	go func() { waits <- suite.Acquire(t, other, "kept") }()
	suite.Release(t, kept)
	suite.Release(t, <-waits)
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := v.count(t, "SELECT count(*) FROM dblock_member"); n != 1 {
		t.Errorf("%d members, want another process's", n)
	}
}
