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

// TestListsAreShared: callers that leave during a list that takes long leave few
// statements. A caller that stays gets a list that began after its call.
func TestListsAreShared(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		l := p.locker(t, lease.Options{})
		p.disturb(func(ctx context.Context, call string, run func() error) error {
			if call == "List" {
				select {
				case <-time.After(900 * time.Millisecond):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return run()
		})
		const hurry = 60 * time.Millisecond
		for range 75 {
			ctx, cancel := context.WithTimeout(t.Context(), hurry)
			if _, err := l.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller that left got %v", err)
			}
			cancel()
		}
		if n := p.called()["List"]; n > 10 {
			t.Errorf("%d statements in %v", n, 75*hurry)
		}
		lock := acquire(t, l)
		if held, err := l.List(t.Context()); err != nil || len(held) != 1 {
			t.Errorf("a list has %d of 1 locks, %v", len(held), err)
		}
		release(t, lock)
		synctest.Wait()
	})
}
