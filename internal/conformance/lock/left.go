package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// What a process no longer uses is released though its Locker was closed or its member was lost at that moment. The
// tables are the checker, while the process lives on.

// leftFree is after how long at the latest the tables hold nothing. A busy machine may need some of it; what is
// forgotten stays for an hour.
const leftFree = 20 * time.Second

// aReleaseBesideClose closes a Locker while its locks are released. Another Locker of the pool keeps the heartbeat
// alive, so that what was not released would stay.
func aReleaseBesideClose(t *testing.T, v *env) {
	const rounds, locks, lasts = 10, 200, 1500 * time.Millisecond
	o := LeaseOptions{TTL: time.Hour}
	for began, n := time.Now(), 0; n < rounds || time.Since(began) < lasts; n++ {
		l, other, closePool, err := v.e.OpenPair(t.Context(), v.dsn, &faultconn.Dialer{}, o, o)
		if err != nil {
			t.Fatal(err)
		}
		keys := make([]string, locks)
		for i := range keys {
			keys[i] = fmt.Sprint("key ", i)
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		var held []*dblock.Lock
		for _, key := range keys {
			all.Go(func() {
				lock := suite.Acquire(t, l, key)
				mu.Lock()
				defer mu.Unlock()
				held = append(held, lock)
			})
		}
		all.Wait()
		for _, lock := range held {
			all.Go(func() { _ = lock.Release(t.Context()) }) // Close may be faster: then it is lost
		}
		all.Go(func() {
			if err := l.Close(suite.Soon(t)); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
		if left := v.untilNothingHeld(t, leftFree); left != "" {
			t.Errorf("after Close %s", left)
		}
		if err := other.Close(suite.Soon(t)); err != nil {
			t.Error(err)
		}
		closePool()
		if t.Failed() {
			return
		}
	}
}

// outageTTL is the TTL of a process whose member is to be lost soon.
const outageTTL = time.Second

// outage is a process that loses its server for longer than its TTL.
type outage struct {
	Leases
	dialer    faultconn.Dialer
	closePool func()
}

func (v *env) openOutage(t *testing.T) *outage {
	t.Helper()
	o := &outage{}
	var err error
	o.Leases, o.closePool, err = v.e.OpenOn(t.Context(), v.dsn, &o.dialer, LeaseOptions{TTL: outageTTL})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// begin ends all connections, and lasts until the member is lost.
func (o *outage) begin(t *testing.T, kept *dblock.Lock) {
	t.Helper()
	o.dialer.Refuse()
	select {
	case <-kept.Context().Done():
	case <-suite.Soon(t).Done():
		t.Error("the member is not lost")
	}
}

// end lets the process reach its server again, which is then to release the lock.
func (o *outage) end(t *testing.T, v *env) {
	t.Helper()
	o.dialer.Accept()
	began := time.Now()
	for v.count(t, leftDetached) > 0 && time.Since(began) < leftFree {
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(began)
	t.Logf("free %v after the outage", took.Round(time.Millisecond))
	if took >= leftFree {
		t.Error("the lock was forgotten")
	}
	o.close(t)
}

func (o *outage) close(t *testing.T) {
	o.dialer.Accept()
	_ = o.Close(suite.Soon(t)) // its connection may be one of those that were closed
	o.closePool()
}

const leftDetached = "SELECT count(*) FROM dblock_lease WHERE lease_key = 'detached' AND handle IS NOT NULL"

// aReleaseInALongOutage releases a lock that no member keeps, while the server is away for longer than the TTL.
func aReleaseInALongOutage(t *testing.T, v *env) {
	o := v.openOutage(t)
	detached := suite.Acquire(t, o, "detached", dblock.WithoutRenewal(time.Hour))
	kept := suite.Acquire(t, o, "kept")
	o.dialer.Refuse()
	suite.Release(t, detached)
	o.begin(t, kept)
	_ = kept.Release(t.Context())
	if v.count(t, leftDetached) != 1 {
		t.Error("the tables do not hold the key during the outage: this shows nothing")
	}
	o.end(t, v)
}

// anAcquireInALongOutage has the server go away between the grant of such a lock and its answer. On a busy machine a
// heartbeat may be struck instead: then the tables don't hold the key, and the next call is tried.
func anAcquireInALongOutage(t *testing.T, v *env) {
	for k := range 40 {
		o := v.openOutage(t)
		suite.Release(t, suite.Acquire(t, o, "warm", dblock.WithoutRenewal(time.Hour)))
		kept := suite.Acquire(t, o, "kept")
		o.dialer.Arm(1+k%8, faultconn.HookBefore, func() { // the answer is read, or what is asked is not written yet
			for began := time.Now(); time.Since(began) < 200*time.Millisecond; time.Sleep(time.Millisecond) {
				if n, err := v.held(leftDetached); n > 0 || err != nil {
					o.dialer.Refuse()
					return
				}
			}
		})
		lock, err := o.TryAcquire(t.Context(), "detached", dblock.WithoutRenewal(time.Hour))
		o.dialer.Disarm()
		if err == nil {
			_ = lock.Release(t.Context())
		} else {
			o.begin(t, kept)
		}
		_ = kept.Release(t.Context())
		if err != nil && v.count(t, leftDetached) == 1 {
			if !errors.Is(err, dblock.ErrOutcomeUnknown) {
				t.Errorf("an acquisition without an answer: %v", err)
			}
			o.end(t, v)
			return
		}
		o.close(t)
		v.exec(t, "DELETE FROM dblock_lease")
	}
	t.Error("no grant was without an answer: this shows nothing")
}

func (v *env) held(query string) (n int, err error) {
	err = v.db.QueryRowContext(context.Background(), query).Scan(&n)
	return n, err
}
