package inventory

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock"
)

// enter begins a call that no merge.Queue carries, and leave ends it. After Close it returns ErrClosed. Close waits for calls that
// have begun.
func (s *Store) enter() (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending.Err() != nil {
		return nil, fmt.Errorf("%w: nothing was sent", dblock.ErrClosed)
	}
	s.calls.Add(1)
	return s.calls.Done, nil
}

// callsEnd waits for those under way while ctx lives.
func (s *Store) callsEnd(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("inventory: calls are still under way: %w", context.Cause(ctx))
	}
}
