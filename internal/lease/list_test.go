package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
)

// TestListsAreShared: callers that leave during a list that takes long leave two statements at
// most. A caller that stays gets a list that began after its call.
func TestListsAreShared(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		l := p.locker(t, lease.Options{})
		p.disturb(func(ctx context.Context, call string, run func() error) error {
			if call == "List" {
				select {
				case <-time.After(5 * time.Second):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return run()
		})
		began := time.Now()
		for range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
			if _, err := l.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller that left got %v", err)
			}
			cancel()
		}
		if n := p.called()["List"]; n > 2 {
			t.Errorf("%d statements after %v", n, time.Since(began))
		}
		lock := acquire(t, l)
		if held, err := l.List(t.Context()); err != nil || len(held) != 1 {
			t.Errorf("a list has %d of 1 locks, %v", len(held), err)
		}
		release(t, lock)
		synctest.Wait()
	})
}
