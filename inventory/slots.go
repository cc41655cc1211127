package inventory

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dblock-go/dblock"
)

// slots bounds how many statements are in flight with Options.Direct. The pool would do so too, but its
// line is not ours: what is merged needs a connection as well, and would wait behind everybody.
type slots struct {
	free    chan struct{}
	waiting atomic.Int64
	most    int64 // that may wait
	closing sync.Mutex
	closed  atomic.Bool

	mu   sync.Mutex
	skus map[string]*skuSlots
}

// skuSlots are the slots of an SKU that some caller has or waits for.
type skuSlots struct {
	free  chan struct{}
	users int
}

func newSlots(n, mayWait int) *slots {
	return &slots{free: make(chan struct{}, n), most: int64(mayWait), skus: make(map[string]*skuSlots)}
}

// enterFor waits for a slot of an SKU's, which is had before any of those for all. While one order is flushed to the disk, others wait
// for the row, and more than a few would only take the slots of other SKUs.
func (s *slots) enterFor(ctx context.Context, sku string) (leave func(), err error) {
	s.mu.Lock()
	own := s.skus[sku]
	if own == nil {
		own = &skuSlots{free: make(chan struct{}, directPerSKU)}
		s.skus[sku] = own
	}
	own.users++
	s.mu.Unlock()
	forget := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(s.skus, sku)
		}
	}
	if err := s.wait(ctx, own.free); err != nil {
		forget()
		return nil, err
	}
	return func() { <-own.free; forget() }, nil
}

func (s *slots) enter(ctx context.Context) error {
	if err := s.wait(ctx, s.free); err != nil {
		return err
	}
	if s.closed.Load() { // perhaps while we waited
		s.leave()
		return fmt.Errorf("%w: nothing was sent", dblock.ErrClosed)
	}
	return nil
}

func (s *slots) wait(ctx context.Context, free chan struct{}) error {
	select {
	case free <- struct{}{}:
		return nil
	default:
	}
	if s.waiting.Add(1) > s.most {
		s.waiting.Add(-1)
		return fmt.Errorf("%w: %d calls wait already; nothing was sent", dblock.ErrOverloaded, s.most)
	}
	defer s.waiting.Add(-1)
	select {
	case free <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("dblock: the wait ended before the request was sent, nothing was written: %w", context.Cause(ctx))
	}
}

func (s *slots) leave() { <-s.free }

// close lets nobody in any more, and waits for those who are: whoever has all slots is alone.
func (s *slots) close(ctx context.Context) error {
	s.closed.Store(true)
	s.closing.Lock()
	defer s.closing.Unlock()
	for range cap(s.free) {
		select {
		case s.free <- struct{}{}:
			defer s.leave()
		case <-ctx.Done():
			return fmt.Errorf("inventory: orders are still under way: %w", context.Cause(ctx))
		}
	}
	return nil
}
