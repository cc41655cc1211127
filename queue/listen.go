package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// subscription is the one connection on which a process listens, while it has workers.
type subscription struct {
	mu    sync.Mutex
	users int
	off   bool // no notification will ever come
	end   context.CancelFunc
	done  chan struct{}
}

// listens has the process listen until leave is called, which returns once the last one's
// connection is closed.
func (n *notices) listens() (leave func()) {
	if n.q.o.PollOnly {
		return func() {}
	}
	e := &n.subscription
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users++
	if e.users == 1 && !e.off {
		ctx, end := context.WithCancel(context.Background())
		over := make(chan struct{})
		e.end, e.done = end, over
		go func() {
			defer close(over)
			defer end()
			n.listen(ctx)
		}()
	}
	return e.stop
}

func (e *subscription) stop() {
	e.mu.Lock()
	e.users--
	if e.users > 0 || e.end == nil {
		e.mu.Unlock()
		return
	}
	over := e.done
	e.end()
	e.end, e.done = nil, nil
	e.mu.Unlock()
	<-over
}

// listen receives notifications, and begins again if the connection ends: what was sent meanwhile
// is lost, so that all workers look.
func (n *notices) listen(ctx context.Context) {
	known := false
	for tries := 0; ; tries++ {
		err := n.q.driver.Notifier().Listen(ctx, func() {
			tries, known = 0, false
			n.received(driver.Notification{Queue: driver.AnyQueue})
		}, n.received)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, dblock.ErrUnsupported) {
			n.subscription.mu.Lock()
			n.subscription.off = true
			n.subscription.mu.Unlock()
			n.q.o.Log.Info("queue: workers learn of other processes' jobs when they poll", "error", err)
			return
		}
		if !known { // once, however long it goes on
			known = true
			n.q.trouble("listening for jobs, workers poll until that works again", err)
		}
		if pace.Sleep(ctx, rand.N(listenAgain<<min(tries, 8))) != nil {
			return
		}
	}
}

// listenAgain is how long at most it is not listened after a connection has ended; after each
// further failure twice as long, up to 26 s.
const listenAgain = 100 * time.Millisecond
