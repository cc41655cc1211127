package conformance

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// aSiblingOutlivesAnother closes one of two Lockers that share a pool, and so a heartbeat, and closes it again: the other
// one keeps what it holds, and goes on.
func aSiblingOutlivesAnother(t *testing.T, v *vault) {
	o := LeaseOptions{TTL: 2 * time.Second, Poll: 50 * time.Millisecond}
	a, b, closePool, err := v.e.OpenPair(t.Context(), v.dsn, &faultconn.Dialer{}, o, o)
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	other := v.process(t, LeaseOptions{})
	release(t, acquire(t, other, "joined"))
	given, kept := acquire(t, a, "given back"), acquire(t, b, "kept")
	release(t, given)
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
	isHeld(t, err, "kept")
	for _, key := range []string{"given back", "new"} {
		release(t, acquire(t, b, key))
	}
	waits := make(chan *dblock.Lock, 1)
	go func() { waits <- acquire(t, other, "kept") }()
	release(t, kept)
	release(t, <-waits)
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := v.count(t, "SELECT count(*) FROM dblock_member"); n != 1 {
		t.Errorf("%d members, want another process's", n)
	}
}
