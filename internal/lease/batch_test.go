package lease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/memlease"
)

// stranger is a driver that answers with grants of another acquisition, as one does that matches
// them by key.
type stranger struct {
	*memlease.Driver
	mu  sync.Mutex
	off bool
}

func (e *stranger) strange(answers []lease.AcquireResult, err error) ([]lease.AcquireResult, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range answers {
		if !e.off {
			answers[i] = lease.AcquireResult{Token: 1, Handle: member.NewID()}
		}
	}
	return answers, err
}

func (e *stranger) Acquire(ctx context.Context, b lease.AcquireBatch) ([]lease.AcquireResult, error) {
	results, err := e.Driver.Acquire(ctx, b)
	if b.Kind == lease.KindFair {
		return results, err
	}
	return e.strange(results, err)
}

func (e *stranger) Entry(ctx context.Context, key string, handle lease.Handle, ticket int64) (lease.QueueEntry, error) {
	entry, err := e.Driver.Entry(ctx, key, handle, ticket)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.off {
		entry.Token, entry.AcquireResult.Handle = 1, member.NewID()
	}
	return entry, err
}

// TestGrantsOfOthersAreRefused has a driver answer with grants of other acquisitions, in each mode.
// No call gets a lock, and what the database granted to it is released.
func TestGrantsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	one := func(opts ...dblock.Option) func(*lease.Locker) (*dblock.Lock, error) {
		return func(l *lease.Locker) (*dblock.Lock, error) { return l.TryAcquire(context.Background(), key, opts...) }
	}
	for name, c := range map[string]struct {
		fair    bool
		acquire func(*lease.Locker) (*dblock.Lock, error)
	}{
		"exclusive": {acquire: one()},
		"shared":    {acquire: one(dblock.WithShared())},
		"permits":   {acquire: one(dblock.WithPermits(1, 1))},
		"fair":      {fair: true, acquire: one()},
		"set": {acquire: func(l *lease.Locker) (*dblock.Lock, error) {
			return l.TryAcquireAll(context.Background(), []string{key, "l"})
		}},
		"ticket": {fair: true, acquire: func(l *lease.Locker) (*dblock.Lock, error) {
			return l.Acquire(context.Background(), key)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { refusesStrangers(t, c.fair, c.acquire, name == "ticket") })
		})
	}
}

func refusesStrangers(t *testing.T, fair bool, acquire func(*lease.Locker) (*dblock.Lock, error), waits bool) {
	server := memlease.NewServer(clock.Real{})
	e := &stranger{Driver: server.Open(), off: waits}
	var shares lease.Shares[int, *stranger]
	m, err := member.Options{TTL: ttl}.WithDefaults("Options")
	if err != nil {
		t.Fatal(err)
	}
	share, err := shares.Open(0, m, func() (*stranger, lease.Backend, error) { return e, backendOf(e.Driver, e), nil })
	if err != nil {
		t.Fatal(err)
	}
	o, err := lease.Options{Fair: fair}.WithDefaults("Options", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	l := lease.New(share, o)
	set := func(off bool) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.off = off
	}
	var held *dblock.Lock
	if waits {
		if held, err = l.TryAcquire(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second/2, func() { set(false) })
	}
	if lock, err := acquire(l); !errors.Is(err, dblock.ErrOutcomeUnknown) || lock != nil {
		t.Errorf("a grant of another acquisition: %v, %v", lock, err)
	}
	set(true)
	if held != nil {
		if err := held.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(3 * ttl) // by then it is reconciled
	if lock, err := acquire(l); err != nil {
		t.Errorf("what the database granted was not released: %v", err)
	} else if err := lock.Release(t.Context()); err != nil {
		t.Error(err)
	}
	closing, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := errors.Join(l.Close(closing), shares.Leaver(0)(closing)); err != nil {
		t.Error(err)
	}
}

// counting is a driver that notes the batches that it is sent.
type counting struct {
	*memlease.Driver
	mu      sync.Mutex
	batches [][]string
}

func (e *counting) Acquire(ctx context.Context, b lease.AcquireBatch) ([]lease.AcquireResult, error) {
	keys := make([]string, len(b.Requests))
	for i, a := range b.Requests {
		keys[i] = a.Key
	}
	e.mu.Lock()
	e.batches = append(e.batches, keys)
	e.mu.Unlock()
	time.Sleep(time.Second) // others come meanwhile
	return e.Driver.Acquire(ctx, b)
}

// TestABatchHasAKeyOnce has a crowd try few keys of a fair Locker at once: no statement has a key
// twice, one caller of each key gets it, and the crowd costs few statements.
func TestABatchHasAKeyOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &counting{Driver: memlease.NewServer(clock.Real{}).Open()}
		var shares lease.Shares[int, *counting]
		m, err := member.Options{TTL: time.Minute}.WithDefaults("Options")
		if err != nil {
			t.Fatal(err)
		}
		share, err := shares.Open(0, m, func() (*counting, lease.Backend, error) { return e, backendOf(e.Driver, e), nil })
		if err != nil {
			t.Fatal(err)
		}
		o, err := lease.Options{Fair: true}.WithDefaults("Options", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		l := lease.New(share, o)
		var mu sync.Mutex
		granted := make(map[string]int)
		var locks []*dblock.Lock
		var crowd sync.WaitGroup
		keys := []string{"a", "b", "c"}
		for i := range 60 {
			crowd.Go(func() {
				lock, err := l.TryAcquire(t.Context(), keys[i%3])
				if err != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				granted[lock.Key()]++
				locks = append(locks, lock)
			})
		}
		crowd.Wait()
		for _, key := range keys {
			if granted[key] != 1 {
				t.Errorf("%q was granted %d times", key, granted[key])
			}
		}
		for _, batch := range e.batches {
			slices.Sort(batch)
			if len(slices.Compact(slices.Clone(batch))) != len(batch) {
				t.Errorf("a batch of %v", batch)
			}
		}
		if n := len(e.batches); n > 6 {
			t.Errorf("%d statements for a crowd: %v", n, e.batches)
		}
		for _, lock := range locks {
			if err := lock.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		closing, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := errors.Join(l.Close(closing), shares.Leaver(0)(closing)); err != nil {
			t.Error(err)
		}
	})
}
