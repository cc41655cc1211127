package lease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/memlease"
)

// TestOverloadedIsNoDoubt has the queue refuse calls: nothing was sent, so there is nothing to be
// undone.
func TestOverloadedIsNoDoubt(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		e, stall, releases := s.Open(), make(chan struct{}), 0
		e.Disturb(func(_ context.Context, call string, run func() error) error {
			switch call {
			case "Acquire":
				<-stall
			case "Release":
				releases++
			}
			return run()
		})
		var shares lease.Shares[int, *memlease.Driver]
		m, _ := member.Options{TTL: ttl}.WithDefaults("Options")
		o, _ := lease.Options{MaxQueue: 1, MaxInFlight: 1}.WithDefaults("Options", time.Second)
		share, err := shares.Open(0, m, func() (*memlease.Driver, lease.Backend, error) { return e, e.Backend(), nil })
		if err != nil {
			t.Fatal(err)
		}
		l := lease.New(share, o)
		for i := range 2 { // one under way, one queued
			go func() {
				if k, err := l.TryAcquire(context.Background(), fmt.Sprint("busy", i)); err == nil {
					_ = k.Release(context.Background())
				}
			}()
			synctest.Wait()
		}
		for i := range 100 {
			if _, err := l.TryAcquire(t.Context(), fmt.Sprint(i)); !errors.Is(err, dblock.ErrOverloaded) {
				t.Fatal(err)
			}
		}
		time.Sleep(ttl / 3 * 2)
		if releases > 0 {
			t.Errorf("%d statements for what was never sent", releases)
		}
		close(stall)
		synctest.Wait()
		_ = l.Close(t.Context())
		_ = shares.Leaver(0)(t.Context())
	})
}

// TestALongWaitHoldsUpNoShortOne polls for one key seldom, and for another one often.
func TestALongWaitHoldsUpNoShortOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		o := lease.Options{Poll: time.Minute}
		other, p := newProcess(s).locker(t, o), newProcess(s)
		p.disturb(func(_ context.Context, call string, run func() error) error {
			if call == "Listen" {
				return fmt.Errorf("%w: deaf", dblock.ErrUnsupported)
			}
			return run()
		})
		l := p.locker(t, o)
		long, err := other.Acquire(t.Context(), "long")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _, _ = l.Acquire(ctx, "long") }()
		time.Sleep(20 * time.Minute)
		for range 5 {
			lock := acquire(t, other)
			var q queue
			q.join(t, l, "short", 0)
			began := time.Now()
			time.Sleep(10 * time.Millisecond)
			release(t, lock)
			q.all.Wait()
			if took := time.Since(began); took > time.Second {
				t.Errorf("a wait for 10ms took %v", took)
			}
		}
		cancel()
		<-done
		release(t, long)
	})
}
