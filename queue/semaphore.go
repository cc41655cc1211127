package queue

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// semaphore lets a few calls at a time use the database. It is for calls that may meet locked rows,
// and of which there may be many: each rests without a connection, and asks again. All others of
// the process have the rest of the connections meanwhile.
type semaphore chan struct{}

const atOnce = 2

func newSemaphore() semaphore { return make(semaphore, atOnce) }

// do runs f when its turn has come.
func (s semaphore) do(ctx context.Context, f func() error) error {
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: other calls wait for locked rows: %w", dblock.ErrBusy, sqlerr.Unwritten(ctx.Err()))
	}
	defer func() { <-s }()
	return f()
}

// try runs f if a turn is free.
func (s semaphore) try(f func() error) (ran bool, err error) {
	select {
	case s <- struct{}{}:
	default:
		return false, nil
	}
	defer func() { <-s }()
	return true, f()
}

// rest waits before a call is made again for the nth time that met a locked row. It returns false
// if ctx has ended.
func rest(ctx context.Context, n int) bool {
	return pace.Sleep(ctx, pace.Jitter(min(firstRest<<min(n, 10), longestRest))) == nil
}
