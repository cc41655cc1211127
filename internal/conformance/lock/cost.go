package lock

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// costsFewRoundTrips counts what a lone caller's calls send: one statement for a key that is free and known, two
// for one that nobody has locked before, one to give it back. MySQL has a bound set and set back before a row is made.
func costsFewRoundTrips(t *testing.T, v *env) {
	var dialer faultconn.Dialer
	l, closePool, err := v.e.OpenOn(t.Context(), v.dsn, &dialer, LeaseOptions{TTL: time.Hour, Poll: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	defer func() { _ = l.Close(t.Context()) }()
	for _, key := range []string{"warm", "other warm"} { // connections are made, statements prepared
		suite.Release(t, suite.Acquire(t, l, key))
		suite.Release(t, suite.Acquire(t, l, key))
	}
	least, trips := suite.LeastTrips(&dialer)
	for _, key := range []string{"a", "b", "c", "d", "e"} { // something may go on beside it, once or twice
		var lock *dblock.Lock
		trips("a fresh key", func() { lock = suite.Acquire(t, l, key) })
		trips("a release", func() { suite.Release(t, lock) })
		trips("a known key", func() { lock = suite.Acquire(t, l, key) })
		suite.Release(t, lock)
	}
	want := map[string]int{"a fresh key": 2, "a release": 1, "a known key": 1}
	if v.e.Kind == devdb.MySQL {
		want["a fresh key"] = 5
	}
	if diff := cmp.Diff(want, least); diff != "" {
		t.Errorf("round trips (- wanted, + made):\n%s", diff)
	}
}

// modesCostFewRoundTrips does the same for readers and permits, where nobody else wants the key.
func modesCostFewRoundTrips(t *testing.T, v *env) {
	var dialer faultconn.Dialer
	l, closePool, err := v.e.OpenOn(t.Context(), v.dsn, &dialer, LeaseOptions{TTL: time.Hour, Poll: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	defer func() { _ = l.Close(t.Context()) }()
	least, trips := suite.LeastTrips(&dialer)
	pair := func(what, key string, opts ...dblock.Option) {
		var lock *dblock.Lock
		trips(what, func() { lock = suite.Acquire(t, l, key, opts...) })
		trips(what+", released", func() { suite.Release(t, lock) })
	}
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		suite.Release(t, suite.Acquire(t, l, key))
		pair("a first reader", key, dblock.WithShared())
		pair("a reader", key, dblock.WithShared())
		pair("a writer after readers", key)
		pair("a writer", key)
		pair("first permits", key, dblock.WithPermits(1, 3))
		pair("permits", key, dblock.WithPermits(3, 3))
	}
	want := map[string]int{
		"a first reader": 1, "a reader": 1, "a writer after readers": 5, "a writer": 1, "first permits": 4, "permits": 1,
		"a first reader, released": 1, "a reader, released": 1, "a writer after readers, released": 1, "a writer, released": 1,
		"first permits, released": 1, "permits, released": 1,
	}
	if v.e.Kind != devdb.Postgres { // what takes several statements there is sent step by step
		want["a first reader"], want["a writer after readers"], want["first permits"] = 4, 6, 6
		want["first permits, released"], want["permits, released"] = 2, 2
	}
	if v.e.Kind == devdb.MySQL {
		want["first permits"], want["a writer after readers"] = 10, 5
	}
	if diff := cmp.Diff(want, least); diff != "" {
		t.Errorf("round trips (- wanted, + made):\n%s", diff)
	}
}

// servesACrowdOnce has thousands wait for one key in one process: all are served, and each of them costs one statement,
// with which the one before it hands over.
func servesACrowdOnce(t *testing.T, v *env) {
	var dialer faultconn.Dialer
	l, closePool, err := v.e.OpenOn(t.Context(), v.dsn, &dialer, LeaseOptions{TTL: time.Hour, Poll: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	defer func() { _ = l.Close(t.Context()) }()
	first := suite.Acquire(t, l, "k")
	var crowd sync.WaitGroup
	for range crowdSize() {
		crowd.Go(func() {
			lock, err := l.Acquire(suite.Soon(t), "k")
			if err != nil {
				t.Error(err)
				return
			}
			suite.Release(t, lock)
		})
	}
	time.Sleep(time.Second) // nothing shows that a caller stands in line; who comes late asks for itself
	dialer.Arm(0, 0, nil)
	suite.Release(t, first)
	crowd.Wait()
	trips := dialer.Writes()
	t.Logf("%d waiters, %d round trips", crowdSize(), trips)
	if most := crowdSize() * 105 / 100; trips > most {
		t.Errorf("want %d at most", most)
	}
}
