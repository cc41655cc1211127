package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// largeBatchesAreSplit acquires and releases many locks with as much data as is allowed, beside small ones. Together
// they do not fit into one statement of a server with a common max_allowed_packet.
func largeBatchesAreSplit(t *testing.T, v *env) {
	const n = 400
	l := v.process(t, LeaseOptions{TTL: 30 * time.Second})
	data := dblock.WithData(make([]byte, dblock.MaxDataBytes))
	for name, with := range map[string]dblock.Option{
		"exclusive": dblock.WithLabel(""), "shared": dblock.WithShared(), "permits": dblock.WithPermits(1, n),
	} {
		locks, errs := acquireTogether(t, l, n, func(i int) (string, []dblock.Option) {
			key := fmt.Sprint(name, i)
			if name == "permits" {
				key = name
			}
			if i%2 == 0 {
				return key, []dblock.Option{data, with}
			}
			return key, []dblock.Option{with}
		})
		if len(errs) > 0 {
			t.Errorf("%s: %d of %d failed: %v", name, len(errs), n, errs[0])
		}
		releaseTogether(t, locks)
	}
	keys := make([]string, n/2)
	for i := range keys {
		keys[i] = fmt.Sprint("set", i)
	}
	set, err := l.TryAcquireAll(suite.Soon(t), keys, data)
	if err != nil {
		t.Fatalf("a set of %d keys: %v", len(keys), err)
	}
	suite.Release(t, set)
	if held, err := l.Held(t.Context()); err != nil || len(held) != 0 {
		t.Errorf("%d locks are held after their release, %v", len(held), err)
	}
}

// oneBadRowFailsAlone has a row whose token cannot grow: an attempt to acquire it fails for certain, and what shares its
// statements is acquired.
func oneBadRowFailsAlone(t *testing.T, v *env) {
	const n, bad = 60, 30
	l := v.process(t, LeaseOptions{TTL: 30 * time.Second})
	key := func(i int) string { return fmt.Sprint("k", i) }
	for i := range n { // half of the rows exist before
		if i%2 == 0 {
			suite.Release(t, suite.Acquire(t, l, key(i)))
		}
	}
	v.exec(t, fmt.Sprintf("UPDATE dblock_lease SET token = %d WHERE lease_key = '%s'", int64(math.MaxInt64), key(bad)))
	for range 5 {
		locks, errs := acquireTogether(t, l, n, func(i int) (string, []dblock.Option) { return key(i), nil })
		if len(locks) != n-1 {
			t.Fatalf("%d of %d neighbors were acquired; errors: %v", len(locks), n-1, errs)
		}
		if len(errs) != 1 || errors.Is(errs[0], dblock.ErrOutcomeUnknown) || errors.Is(errs[0], dblock.ErrNotAcquired) {
			t.Fatalf("the bad row: %v", errs)
		}
		releaseTogether(t, locks)
	}
	if _, err := l.TryAcquireAll(suite.Soon(t), []string{key(bad - 1), key(bad)}); err == nil || errors.Is(err, dblock.ErrOutcomeUnknown) {
		t.Errorf("a set with the bad row: %v", err)
	}
	suite.Release(t, suite.Acquire(t, l, "permits", dblock.WithPermits(2, 2)))
	v.exec(t, fmt.Sprintf("UPDATE dblock_permit SET token = %d WHERE slot = 1", int64(math.MaxInt64)))
	suite.Release(t, suite.Acquire(t, l, "permits", dblock.WithPermits(1, 2)))
	_, err := l.TryAcquire(suite.Soon(t), key(bad), dblock.WithShared())
	if err == nil || errors.Is(err, dblock.ErrOutcomeUnknown) {
		t.Errorf("the bad row, shared: %v", err)
	}
}

// aTokenAheadOfTheClock has rows whose tokens are ahead of the server's clock, as after the clock was set back. They are
// free: every mode acquires them, and their tokens grow.
func aTokenAheadOfTheClock(t *testing.T, v *env) {
	l := v.process(t, LeaseOptions{})
	keys := []string{"a", "b", "c"}
	for _, key := range keys {
		suite.Release(t, suite.Acquire(t, l, key))
	}
	ahead := time.Now().Add(time.Hour).UnixMicro()
	v.exec(t, fmt.Sprintf("UPDATE dblock_lease SET token = %d WHERE lease_key <> 'c'", ahead))
	set, err := l.TryAcquireAll(suite.Soon(t), keys)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range set.Fences() {
		if f.Key != "c" && f.Token <= ahead {
			t.Errorf("the token of %q is %d after %d", f.Key, f.Token, ahead)
		}
	}
	suite.Release(t, set)
	locks, errs := acquireTogether(t, l, len(keys), func(i int) (string, []dblock.Option) { return keys[i], nil })
	if len(errs) > 0 {
		t.Error(errs)
	}
	releaseTogether(t, locks)
	suite.Release(t, suite.Acquire(t, l, "a", dblock.WithShared()))
}

// acquireTogether tries to acquire n locks at once; which says what each asks for.
func acquireTogether(
	t *testing.T, l Leases, n int, which func(i int) (key string, with []dblock.Option),
) (locks []*dblock.Lock, errs []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			key, with := which(i)
			lock, err := l.TryAcquire(ctx, key, with...)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			locks = append(locks, lock)
		})
	}
	close(start)
	all.Wait()
	return locks, errs
}

func releaseTogether(t *testing.T, locks []*dblock.Lock) {
	t.Helper()
	var all sync.WaitGroup
	for _, lock := range locks {
		all.Go(func() {
			if err := lock.Release(t.Context()); err != nil {
				t.Errorf("release of %q: %v", lock.Key(), err)
			}
		})
	}
	all.Wait()
}
