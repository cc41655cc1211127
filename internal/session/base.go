package session

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
)

// base is what all parts of a Locker use. Its mutex guards the slots, the holds and the requests of
// all sessions.
type base struct {
	driver Driver
	o      Options
	self   dblock.Locker // of the locks that are granted

	mu     sync.Mutex
	closed bool
	wakers sync.Pool // see waker

	ending context.Context
	end    context.CancelCauseFunc
	keeps  sync.WaitGroup // what runs for as long as a session or the Locker

	running int           // work in the background that ends by itself; guarded by mu
	idle    chan struct{} // closed when there is none left; made by awaitIdle
}

// background runs something that ends by itself; b.mu is held.
func (b *base) background(do func()) {
	b.running++
	go func() {
		do()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ran(1)
	}()
}

// ran counts n that have ended; b.mu is held.
func (b *base) ran(n int) {
	b.running -= n
	if b.running == 0 && b.idle != nil {
		closeOnce(b.idle)
	}
}

// awaitIdle waits for a second at most until nothing runs in the background, while ctx lives.
func (b *base) awaitIdle(ctx context.Context) {
	b.mu.Lock()
	if b.idle == nil {
		b.idle = make(chan struct{})
		b.ran(0)
	}
	idle := b.idle
	b.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

// waker returns a channel on which a caller waits. It may be left over from another caller, so a
// caller that is woken checks why.
func (b *base) waker() chan struct{} {
	if w, ok := b.wakers.Get().(chan struct{}); ok {
		return w
	}
	return make(chan struct{}, 1)
}

// wake never waits.
func wake(w chan struct{}) {
	select {
	case w <- struct{}{}:
	default: // no caller waits, or it is awake already
	}
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

func errClosed() error { return fmt.Errorf("%w: nothing was locked", dblock.ErrClosed) }
