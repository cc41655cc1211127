package lease_test

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
)

// stuck is a host whose Log and Observer block until it may go on.
type stuck struct {
	slog.Handler
	until chan struct{}
	lost  atomic.Int64
}

func newStuck() *stuck {
	return &stuck{Handler: slog.NewTextHandler(io.Discard, nil), until: make(chan struct{})}
}

func (s *stuck) Handle(context.Context, slog.Record) error {
	<-s.until
	return nil
}

func (s *stuck) options() lease.Options {
	return lease.Options{Log: slog.New(s), Observer: dblock.Observer{
		Lost: func(string, time.Duration, dblock.Reason) {
			<-s.until
			s.lost.Add(1)
		},
		HeartbeatLate: func(time.Duration, error) { <-s.until },
	}}
}

// TestAHostThatBlocksKeepsNoLock: all locks end, however they are lost, while the Log and the
// Observer block.
func TestAHostThatBlocksKeepsNoLock(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *process, *lease.Locker, *lease.Locker){
		"the heartbeats fail": func(_ *testing.T, p *process, _, _ *lease.Locker) {
			p.disturb(func(_ context.Context, call string, run func() error) error {
				if call == "Heartbeat" {
					return errNoReply
				}
				return run()
			})
		},
		"an operator releases them": func(t *testing.T, _ *process, _, other *lease.Locker) {
			held, err := other.List(t.Context())
			for _, h := range held {
				if err := other.ForceRelease(t.Context(), h.Key, h.Fence.Token); err != nil {
					t.Error(err)
				}
			}
			if err != nil || len(held) != 3 {
				t.Errorf("%d are held, %v", len(held), err)
			}
		},
		"the Locker is closed": func(_ *testing.T, _ *process, l, _ *lease.Locker) {
			go func() { _ = l.Close(context.Background()) }()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlease.Server) {
				host, p := newStuck(), newProcess(s)
				l, other := p.locker(t, host.options()), newProcess(s).locker(t, lease.Options{})
				var locks []*dblock.Lock
				for _, key := range []string{"a", "b", "c"} {
					lock, err := l.Acquire(t.Context(), key)
					if err != nil {
						t.Fatal(err)
					}
					locks = append(locks, lock)
				}
				lose(t, p, l, other)
				time.Sleep(ttl)
				for _, lock := range locks {
					if lock.Context().Err() == nil {
						t.Errorf("%q is not lost", lock.Key())
					}
				}
				if n := host.lost.Load(); n > 0 {
					t.Errorf("the Observer was told of %d before it went on", n)
				}
				close(host.until)
				synctest.Wait()
				if n := host.lost.Load(); n != 3 {
					t.Errorf("the Observer was told of %d losses", n)
				}
				for _, lock := range locks {
					_ = lock.Release(context.Background())
				}
				p.disturb(func(_ context.Context, _ string, run func() error) error { return run() })
			})
		})
	}
}

// TestAHostThatBlocksStopsNoHeartbeat: a lock outlives heartbeats that fail, while the Log and the
// Observer block.
func TestAHostThatBlocksStopsNoHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		host, p := newStuck(), newProcess(s)
		lock := acquire(t, p.locker(t, host.options()))
		var n atomic.Int64
		p.disturb(func(_ context.Context, call string, run func() error) error {
			if call == "Heartbeat" && n.Add(1)%3 != 0 {
				return errNoReply
			}
			return run()
		})
		time.Sleep(10 * ttl)
		if lock.Context().Err() != nil || n.Load() < 10 {
			t.Errorf("after %d heartbeats: %v", n.Load(), context.Cause(lock.Context()))
		}
		close(host.until)
		release(t, lock)
	})
}
