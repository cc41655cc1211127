package inventory

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/dblock-go/dblock"
)

// slots bounds how many statements are in flight under Direct. The pool would do so too, but its
// line is not ours: what is merged needs a connection as well, and would wait behind everybody.
type slots struct {
	free    chan struct{}
	waiting atomic.Int64
	most    int64 // that may wait
}

func newSlots(n, mayWait int) *slots {
	return &slots{free: make(chan struct{}, n), most: int64(mayWait)}
}

func (s *slots) enter(ctx context.Context) error {
	select {
	case s.free <- struct{}{}:
		return nil
	default:
	}
	if s.waiting.Add(1) > s.most {
		s.waiting.Add(-1)
		return fmt.Errorf("%w: %d calls wait already; nothing was sent", dblock.ErrOverloaded, s.most)
	}
	defer s.waiting.Add(-1)
	select {
	case s.free <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("dblock: the wait ended before the request was sent, nothing was written: %w", context.Cause(ctx))
	}
}

func (s *slots) leave() { <-s.free }
