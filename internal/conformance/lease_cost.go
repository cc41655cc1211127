package conformance

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// costsFewRoundTrips counts what a lone caller's calls send: one statement for a key that is free and known, two
// for one that nobody has locked before, one to give it back.
func costsFewRoundTrips(t *testing.T, v *vault) {
	var dialer faultconn.Dialer
	l, closePool, err := v.e.OpenOn(t.Context(), v.dsn, &dialer, LeaseOptions{TTL: time.Hour, Poll: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	defer func() { _ = l.Close(t.Context()) }()
	for _, key := range []string{"warm", "other warm"} { // connections are made, statements prepared
		release(t, acquire(t, l, key))
		release(t, acquire(t, l, key))
	}
	least := map[string]int{}
	trips := func(what string, call func()) {
		dialer.Arm(0, 0, nil)
		call()
		n := dialer.Writes()
		if before, ok := least[what]; !ok || n < before {
			least[what] = n
		}
	}
	for _, key := range []string{"a", "b", "c", "d", "e"} { // something may go on beside it, once or twice
		var lock *dblock.Lock
		trips("a fresh key", func() { lock = acquire(t, l, key) })
		trips("a release", func() { release(t, lock) })
		trips("a known key", func() { lock = acquire(t, l, key) })
		release(t, lock)
	}
	want := map[string]int{"a fresh key": 2, "a release": 1, "a known key": 1}
	if diff := cmp.Diff(want, least); diff != "" {
		t.Errorf("round trips (- wanted, + made):\n%s", diff)
	}
}

// servesACrowdOnce has thousands wait for one key in one process: all are served, and each of them costs one statement,
// with which the one before it hands over.
func servesACrowdOnce(t *testing.T, v *vault) {
	var dialer faultconn.Dialer
	l, closePool, err := v.e.OpenOn(t.Context(), v.dsn, &dialer, LeaseOptions{TTL: time.Hour, Poll: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	defer func() { _ = l.Close(t.Context()) }()
	first := acquire(t, l, "k")
	var crowd sync.WaitGroup
	for range crowdSize() {
		crowd.Go(func() {
			lock, err := l.Acquire(soon(t), "k")
			if err != nil {
				t.Error(err)
				return
			}
			release(t, lock)
		})
	}
	time.Sleep(time.Second) // nothing shows that a caller stands in line; who comes late asks for itself
	dialer.Arm(0, 0, nil)
	release(t, first)
	crowd.Wait()
	trips := dialer.Writes()
	t.Logf("%d waiters, %d round trips", crowdSize(), trips)
	if most := crowdSize() * 105 / 100; trips > most {
		t.Errorf("want %d at most", most)
	}
}
