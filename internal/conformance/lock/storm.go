package lock

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// storm is callers of two processes that acquire one key with deadlines of 0.1 to 5 ms. Most of
// them leave without an answer. Meanwhile one patient caller of each process acquires the key
// against all others, in a mode that any of them keeps out.
type storm struct {
	fair               bool
	impatient, patient func() []dblock.Option
	calls, got         atomic.Int64
}

func exclusively() []dblock.Option { return nil }

// aStormOfReaders: writers acquire a key that readers storm.
func aStormOfReaders(t *testing.T, v *env) {
	shared := func() []dblock.Option { return []dblock.Option{dblock.WithShared()} }
	v.storm(t, &storm{impatient: shared, patient: exclusively})
}

// aStormOnPermits: callers acquire all permits of a semaphore that others storm.
func aStormOnPermits(t *testing.T, v *env) {
	const permits = 5
	some := func() []dblock.Option { return []dblock.Option{dblock.WithPermits(1+rand.N(3), permits)} }
	all := func() []dblock.Option { return []dblock.Option{dblock.WithPermits(permits, permits)} }
	v.storm(t, &storm{impatient: some, patient: all})
}

// aStormOfTickets: callers wait with tickets among many that are withdrawn.
func aStormOfTickets(t *testing.T, v *env) {
	v.storm(t, &storm{fair: true, impatient: exclusively, patient: exclusively})
}

// storm lasts until each patient caller has had the key three times, and a second at least. Then
// the tables must hold nothing. The TTL is long: what was abandoned would keep the key from all
// others.
func (v *env) storm(t *testing.T, s *storm) {
	const grants, lasts = 3, time.Second
	began, over := time.Now(), make(chan struct{})
	var calls, patient sync.WaitGroup
	for _, callers := range []int{40, 10} {
		l := v.process(t, LeaseOptions{TTL: time.Hour, Fair: s.fair})
		suite.IsFree(t, l, "k", s.patient()...)
		for range callers {
			calls.Go(func() { s.callUntil(t, l, over) })
		}
		patient.Go(func() {
			for n := 0; n < grants || time.Since(began) < lasts; n++ {
				lock, err := l.Acquire(suite.Soon(t), "k", s.patient()...)
				if !assert.NoError(t, err, "a patient caller that had the key %d times", n) {
					return
				}
				assert.NoError(t, lock.Release(t.Context()))
			}
		})
	}
	patient.Wait()
	close(over)
	calls.Wait()
	assert.Empty(t, v.untilNothingHeld(t, leftFree), "after the storm")
	assert.Less(t, s.got.Load(), s.calls.Load(), "no call was cut off: the storm shows nothing")
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
		lock, err := l.Acquire(ctx, "k", s.impatient()...)
		cancel()
		s.calls.Add(1)
		if lock != nil {
			s.got.Add(1)
			assert.NoError(t, lock.Release(t.Context()))
			continue
		}
		refused := isAny(err, dblock.ErrOutcomeUnknown, dblock.ErrNotAcquired, dblock.ErrBusy, context.DeadlineExceeded)
		if !assert.True(t, refused, "%v", err) {
			return
		}
	}
}
