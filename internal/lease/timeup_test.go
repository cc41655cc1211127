package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// TestALockWhoseTimeIsUpNeedsNoRelease: nothing of it is kept, and Close waits for it no more. A
// later Release does no harm to the next holder. The control is a lock that lasts.
func TestALockWhoseTimeIsUpNeedsNoRelease(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *lease.Locker) *dblock.Lock{
		"WithoutRenewal": with(dblock.WithoutRenewal(time.Second)),
		"WithMaxHold":    with(dblock.WithMaxHold(time.Second)),
		"readers":        with(dblock.WithMaxHold(time.Second), dblock.WithShared()),
		"permits":        with(dblock.WithoutRenewal(time.Second), dblock.WithPermits(1, 2)),
		"ExpireIn": func(t *testing.T, l *lease.Locker) *dblock.Lock {
			lock := acquire(t, l)
			if err := lock.ExpireIn(t.Context(), time.Second); err != nil {
				t.Error(err)
			}
			return lock
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlease.Server) {
				p := newProcess(s)
				l := p.locker(t, lease.Options{})
				lock := end(t, l)
				if holds, handles := lease.Kept(l); holds != 1 || handles != 1 {
					t.Errorf("%d locks and %d handles are kept, want 1 of each", holds, handles)
				}
				time.Sleep(2 * time.Second)
				if holds, handles := lease.Kept(l); holds != 0 || handles != 0 {
					t.Errorf("%d locks and %d handles are kept after the end", holds, handles)
				}
				next := newProcess(s).locker(t, lease.Options{})
				held := acquire(t, next)
				if err := lock.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
					t.Error(err)
				}
				if held.Context().Err() != nil {
					t.Error("a late Release has taken the next lock")
				}
				release(t, held)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := l.Close(ctx); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestALostLockWhoseTimeIsUpNeedsNoRelease: the member of a lock with an end of its own expires
// before that end. The lock is lost, and forgotten at its end.
func TestALostLockWhoseTimeIsUpNeedsNoRelease(t *testing.T) {
	for name, options := range map[string][]dblock.Option{
		"exclusive": {dblock.WithMaxHold(time.Hour)},
		"readers":   {dblock.WithMaxHold(time.Hour), dblock.WithShared()},
		"permits":   {dblock.WithMaxHold(time.Hour), dblock.WithPermits(1, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlease.Server) {
				p := newProcess(s)
				l := p.locker(t, lease.Options{})
				lock := with(options...)(t, l)
				s.Admin().DeleteMembers()
				<-lock.Context().Done()
				if holds, _ := lease.Kept(l); holds != 1 {
					t.Errorf("%d locks are kept before the end, want 1", holds)
				}
				time.Sleep(time.Hour)
				if holds, handles := lease.Kept(l); holds != 0 || handles != 0 {
					t.Errorf("%d locks and %d handles are kept after the end", holds, handles)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := l.Close(ctx); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestAnEndThatTheServerNeverGotIsReleased: an ExpireIn has no answer and no effect. The lock ends
// for its process, and soon after that another process can have it, without a Release.
func TestAnEndThatTheServerNeverGotIsReleased(t *testing.T) {
	for name, options := range map[string][]dblock.Option{
		"exclusive": nil, "readers": {dblock.WithShared()}, "permits": {dblock.WithPermits(1, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlease.Server) {
				p := newProcess(s)
				l := p.locker(t, lease.Options{})
				lock := with(options...)(t, l)
				p.disturb(func(_ context.Context, call string, run func() error) error {
					if call == "ExpireIn" {
						return &memlease.Failure{As: sqlerr.Unresolved, Err: errors.New("lost")}
					}
					return run()
				})
				if err := lock.ExpireIn(t.Context(), time.Minute); !errors.Is(err, dblock.ErrOutcomeUnknown) {
					t.Error(err)
				}
				<-lock.Context().Done()
				time.Sleep(2 * time.Second)
				if holds, handles := lease.Kept(l); holds != 0 || handles != 0 {
					t.Errorf("%d locks and %d handles are kept after the end", holds, handles)
				}
				other := options
				if name == "readers" {
					other = nil
				}
				next, err := newProcess(s).locker(t, lease.Options{}).TryAcquire(t.Context(), key, other...)
				if err != nil {
					t.Fatal(err)
				}
				release(t, next)
			})
		})
	}
}
