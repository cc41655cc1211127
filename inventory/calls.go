package inventory

import (
	"context"
	"fmt"
	"sync"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
)

// calls counts the calls that no batch.Queue carries, and work in the background. Close waits for
// them.
type calls struct {
	mu     sync.Mutex
	ending context.Context // done once Close was called
	end    context.CancelFunc
	group  sync.WaitGroup
}

func newCalls() *calls {
	c := new(calls)
	c.ending, c.end = context.WithCancel(context.Background())
	return c
}

// begin begins a call, and leave ends it. After Close it returns ErrClosed.
func (c *calls) begin() (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed() {
		return nil, fmt.Errorf("%w: nothing was sent", dblock.ErrClosed)
	}
	c.group.Add(1)
	return c.group.Done, nil
}

// background runs work that Close ends.
func (c *calls) background(work func(context.Context)) {
	if leave, err := c.begin(); err == nil {
		go func() {
			defer leave()
			work(c.ending)
		}()
	}
}

func (c *calls) isClosed() bool { return c.ending.Err() != nil }

// close refuses further calls.
func (c *calls) close() {
	c.mu.Lock() // nothing begins once wait was called
	defer c.mu.Unlock()
	c.end()
}

// wait waits for the calls under way while ctx lives.
func (c *calls) wait(ctx context.Context) error {
	return clock.Await(ctx, clock.After(c.group.Wait), "to close: calls are still under way")
}
