package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// A cancel storm: callers of two processes acquire one key with deadlines of 0.1 to 5 ms, and most of them leave
// without an answer. Meanwhile one patient caller in each process acquires the key against all others. The patient
// callers have to make progress, and what the others left behind must not keep the key.

const (
	stormTime     = time.Second // at least
	stormGrants   = 3           // to each patient caller, at least
	stormPatience = 20 * time.Second

	// stormTTL makes the next heartbeat too late to free anything that was abandoned.
	stormTTL = time.Minute

	// stormHeld is how long one acquisition may keep the key. Each caller releases it at once, on a busy machine.
	stormHeld = 5 * time.Second
)

// stormCallers are the impatient callers of each process.
var stormCallers = []int{40, 10}

// storm is one of them.
type storm struct {
	key                 string
	fair                bool
	impatient, patient  func() []dblock.Option
	calls, got, unknown atomic.Int64
}

func exclusively() []dblock.Option { return nil }

// aStormOfReaders: writers acquire a key that readers storm.
func aStormOfReaders(t *testing.T, v *env) {
	v.storm(t, &storm{
		key: "k", impatient: func() []dblock.Option { return []dblock.Option{dblock.WithShared()} }, patient: exclusively,
	})
}

// aStormOnPermits: two callers acquire all permits of a semaphore that others storm.
func aStormOnPermits(t *testing.T, v *env) {
	const permits = 5
	v.storm(t, &storm{
		key:       "k",
		impatient: func() []dblock.Option { return []dblock.Option{dblock.WithPermits(1+rand.N(3), permits)} },
		patient:   func() []dblock.Option { return []dblock.Option{dblock.WithPermits(permits, permits)} },
	})
}

// aStormOfTickets: two callers wait with tickets among many that are withdrawn.
func aStormOfTickets(t *testing.T, v *env) {
	v.storm(t, &storm{key: "k", fair: true, impatient: exclusively, patient: exclusively})
}

// storm runs a storm until its patient callers have made progress, and then looks for what it left.
func (v *env) storm(t *testing.T, s *storm) {
	var calls, patients sync.WaitGroup
	over := make(chan struct{})
	longest := v.longestHeld(t, over)
	for _, n := range stormCallers {
		l := v.process(t, LeaseOptions{TTL: stormTTL, Fair: s.fair})
		suite.Release(t, suite.Acquire(t, l, s.key, s.patient()...))
		for range n {
			calls.Go(func() { s.callUntil(t, l, over) })
		}
		patients.Go(func() { s.wait(t, l) })
	}
	patients.Wait()
	close(over)
	calls.Wait()
	silent := time.Now()
	left := v.untilNothingHeld(t, churnFreeShort)
	held := <-longest
	t.Logf("%d calls, %d acquired, %d of unknown outcome; one acquisition kept the key for %v; free after %v",
		s.calls.Load(), s.got.Load(), s.unknown.Load(), held.Round(time.Millisecond), time.Since(silent).Round(time.Millisecond))
	if left != "" {
		t.Errorf("%v after the storm %s", churnFreeShort, left)
	}
	if held > stormHeld {
		t.Errorf("one acquisition kept the key for %v", held)
	}
	if s.calls.Load() == s.got.Load() {
		t.Error("no call was cut off: the storm shows nothing")
	}
}

// wait is a patient caller. It ends once it has acquired the key often enough.
func (s *storm) wait(t *testing.T, l Leases) {
	ctx, cancel := context.WithTimeout(t.Context(), stormPatience)
	defer cancel()
	var waits []time.Duration
	for began := time.Now(); len(waits) < stormGrants || time.Since(began) < stormTime; {
		asked := time.Now()
		lock, err := l.Acquire(ctx, s.key, s.patient()...)
		if err != nil {
			t.Errorf("a patient caller was granted the key %d times in %v: %v", len(waits), time.Since(began).Round(time.Millisecond), err)
			return
		}
		waits = append(waits, time.Since(asked))
		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	slices.Sort(waits)
	t.Logf("a patient caller was granted the key %d times; it waited for %v in the median, for %v at most",
		len(waits), waits[len(waits)/2], waits[len(waits)-1])
}

// callUntil is an impatient caller.
func (s *storm) callUntil(t *testing.T, l Leases, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Microsecond+rand.N(4900*time.Microsecond))
		lock, err := l.Acquire(ctx, s.key, s.impatient()...)
		cancel()
		s.calls.Add(1)
		switch {
		case lock != nil:
			s.got.Add(1)
			if err := lock.Release(context.WithoutCancel(ctx)); err != nil {
				t.Errorf("release: %v", err)
			}
		case errors.Is(err, dblock.ErrOutcomeUnknown):
			s.unknown.Add(1)
		case !errors.Is(err, dblock.ErrNotAcquired) && !errors.Is(err, dblock.ErrBusy) && !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("an impatient caller got %v", err)
			return
		}
	}
}

// longestHeld says, when it is over, for how long the tables showed one acquisition.
func (v *env) longestHeld(t *testing.T, over <-chan struct{}) <-chan time.Duration {
	t.Helper()
	const held = `SELECT handle FROM dblock_lease WHERE handle IS NOT NULL UNION ALL
		SELECT handle FROM dblock_reader UNION ALL SELECT handle FROM dblock_permit WHERE handle IS NOT NULL`
	longest := make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		defer func() { longest <- most }()
		since := make(map[string]time.Time)
		for {
			select {
			case <-over:
				return
			case <-time.After(50 * time.Millisecond):
			}
			now, handles := time.Now(), make(map[string]time.Time)
			rows, err := v.db.QueryContext(t.Context(), held)
			if err != nil {
				t.Error(err)
				return
			}
			for rows.Next() {
				var handle []byte
				if err := rows.Scan(&handle); err != nil {
					t.Error(err)
				}
				first, seen := since[string(handle)]
				if !seen {
					first = now
				}
				handles[string(handle)] = first
				most = max(most, now.Sub(first))
			}
			if err := errors.Join(rows.Err(), rows.Close()); err != nil {
				t.Error(err)
				return
			}
			since = handles
		}
	}()
	return longest
}
