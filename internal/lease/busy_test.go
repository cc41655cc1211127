package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// waits are the ways to wait for a lease, by the call of the driver that grants it.
var waits = map[string]func(ctx context.Context, l *lease.Locker) (*dblock.Lock, error){
	"Acquire": func(ctx context.Context, l *lease.Locker) (*dblock.Lock, error) { return l.Acquire(ctx, key) },
	"AcquireShared": func(ctx context.Context, l *lease.Locker) (*dblock.Lock, error) {
		return l.Acquire(ctx, key, dblock.WithShared())
	},
	"AcquirePermits": func(ctx context.Context, l *lease.Locker) (*dblock.Lock, error) {
		return l.Acquire(ctx, key, dblock.WithPermits(1, 2))
	},
	"AcquireAll": func(ctx context.Context, l *lease.Locker) (*dblock.Lock, error) {
		return l.AcquireAll(ctx, []string{key, "k2"})
	},
	"Register":   func(ctx context.Context, l *lease.Locker) (*dblock.Lock, error) { return l.Acquire(ctx, key) },
	"InTurn":     func(ctx context.Context, l *lease.Locker) (*dblock.Lock, error) { return l.Acquire(ctx, key) },
	"Enqueue":    func(ctx context.Context, l *lease.Locker) (*dblock.Lock, error) { return l.Acquire(ctx, key) },
	"ReadTicket": func(ctx context.Context, l *lease.Locker) (*dblock.Lock, error) { return l.Acquire(ctx, key) },
}

// TestErrorsThatEndAWait has each kind of error meet a call that waits. What says that nothing was
// written because something was busy never ends the wait.
func TestErrorsThatEndAWait(t *testing.T) {
	for call, wait := range waits {
		for as, ends := range map[sqlerr.Class]error{
			sqlerr.Busy: nil, sqlerr.Retryable: nil, sqlerr.Unavailable: dblock.ErrUnavailable, sqlerr.Unresolved: dblock.ErrOutcomeUnknown,
		} {
			if (call == "ReadTicket" || call == "Register") && as == sqlerr.Unresolved {
				continue // a statement that only reads, or joins, leaves no lock unresolved
			}
			t.Run(call, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *memlease.Server) {
					testErrorAmidAWait(t, s, call, wait, as, ends)
				})
			})
		}
	}
}

func testErrorAmidAWait(
	t *testing.T, s *memlease.Server, call string, wait func(context.Context, *lease.Locker) (*dblock.Lock, error), as sqlerr.Class, ends error,
) {
	fair := call == "Register" || call == "InTurn" || call == "Enqueue" || call == "ReadTicket"
	p := newProcess(s)
	l := p.locker(t, lease.Options{Fair: fair})
	var before *dblock.Lock
	if call == "Enqueue" || call == "ReadTicket" { // only a call that is refused takes a ticket
		before = acquire(t, l)
	}
	name := call
	if call == "InTurn" {
		name = "Acquire"
	}
	var failed atomic.Int64
	p.disturb(func(_ context.Context, called string, run func() error) error {
		if called == name && failed.Add(1) <= 20 {
			return &memlease.Failure{As: as, Err: errors.New("as the test says")}
		}
		return run()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if before != nil {
		go func() {
			time.Sleep(5 * time.Second)
			release(t, before)
		}()
	}
	lock, err := wait(ctx, l)
	if lock != nil {
		release(t, lock)
	}
	if !errors.Is(err, ends) || (err == nil) != (ends == nil) {
		t.Errorf("%s meets fault %d: %v, want %v", call, as, err, ends)
	}
	if failed.Load() == 0 {
		t.Errorf("%s was not called", name)
	}
	time.Sleep(time.Minute) // what is unresolved is reconciled
	synctest.Wait()
}

// TestALostMemberWaitsOn has the member of a waiter vanish, which the server learns of anew:
// another process, which hands the key over among its own callers, lets the waiter have its turn.
func TestALostMemberWaitsOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		o := lease.Options{Poll: time.Second}
		p := newProcess(s)
		busy, waiter := newProcess(s).locker(t, o), p.locker(t, o)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		first := acquire(t, busy)
		for range 3 { // this process always has a waiter for the key
			go func() {
				for ctx.Err() == nil {
					lock, err := busy.Acquire(ctx, key)
					if err == nil {
						time.Sleep(10 * time.Millisecond)
						release(t, lock)
					}
				}
			}()
		}
		got := make(chan time.Time, 1)
		go func() {
			release(t, acquire(t, waiter))
			got <- time.Now()
		}()
		synctest.Wait()
		inc, err := p.enter(t).Member.Current(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.Admin().DeleteMember(inc.ID)
		release(t, first)
		began := time.Now()
		if took := (<-got).Sub(began); took > 20*time.Second {
			t.Errorf("the waiter was served after %v", took)
		}
		stop()
		if err := p.shares.Leaver(0)(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
