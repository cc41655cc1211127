package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
)

// TestForgottenReleases has the server forget releases while the process lives: they are repeated
// after a heartbeat that follows a failed one, or else in the end. What another Locker of the
// process holds stays.
func TestForgottenReleases(t *testing.T) {
	for name, fails := range map[string]bool{"after a failed heartbeat": true, "in the end": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlease.Server) {
				p := newProcess(s)
				l, fair := p.locker(t, lease.Options{}), p.locker(t, lease.Options{Fair: true})
				kept, err := fair.Acquire(t.Context(), "kept")
				if err != nil {
					t.Fatal(err)
				}
				defer release(t, kept)
				var forget []func()
				for _, o := range []struct {
					l    *lease.Locker
					keys []string
					opts []dblock.Option
				}{
					{l, []string{"alone"}, nil}, {fair, []string{"in turn"}, nil}, {l, []string{"a", "b"}, nil},
					{l, []string{"shared"}, []dblock.Option{dblock.WithShared()}}, {l, []string{"permits"}, []dblock.Option{dblock.WithPermits(2, 2)}},
				} {
					lock, err := acquireKeys(t.Context(), o.l, o.keys, o.opts)
					if err != nil {
						t.Fatal(err)
					}
					for _, f := range lock.Fences() {
						forget = append(forget, s.Admin().Remember(lease.ReleaseRequest{Key: f.Key, Token: f.Token, Handle: f.Handle, Mode: f.Mode}))
					}
					release(t, lock)
				}
				time.Sleep(ttl) // whatever was due before
				for _, f := range forget {
					f()
				}
				within := 15 * time.Minute
				if fails {
					within = ttl
					p.disturb(failOnce("Heartbeat"))
				}
				if held := count(t, l); held != len(forget)+1 {
					t.Errorf("the server forgot %d releases, and has %d locks", len(forget), held)
				}
				time.Sleep(within)
				if held := count(t, l); held != 1 {
					t.Errorf("%d locks are held %v later, and not 1", held, within)
				}
				if kept.Context().Err() != nil {
					t.Errorf("a lock was lost: %v", context.Cause(kept.Context()))
				}
			})
		})
	}
}

func acquireKeys(ctx context.Context, l *lease.Locker, keys []string, opts []dblock.Option) (*dblock.Lock, error) {
	if len(keys) > 1 {
		return l.AcquireAll(ctx, keys, opts...)
	}
	return l.Acquire(ctx, keys[0], opts...)
}

// failOnce has a call fail once.
func failOnce(call string) memlease.Around {
	failed := false
	return func(_ context.Context, is string, run func() error) error {
		if is == call && !failed {
			failed = true
			return errNoReply
		}
		return run()
	}
}

// count is how many locks are held.
func count(t *testing.T, l *lease.Locker) int {
	t.Helper()
	held, err := l.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(held)
}
