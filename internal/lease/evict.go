package lease

import (
	"context"
	"sync"

	"github.com/dblock-go/dblock/internal/member"
)

// evictions are of members that were seen to be dead. Each is evicted once, however many of its leases are wanted.
type evictions struct {
	mu sync.Mutex
	of map[member.ID]*eviction
}

type eviction struct {
	done chan struct{}
	gone bool // for good; read it after done
}

// mostGone bounds how many are remembered.
const mostGone = 64

// evict tells whether a member is gone for good, and sees to it that it is.
func (e *evictions) evict(ctx context.Context, l *Locker, id member.ID) (gone bool) {
	e.mu.Lock()
	x := e.of[id]
	if x == nil {
		x = &eviction{done: make(chan struct{})}
		if e.of == nil || len(e.of) >= mostGone {
			e.of = make(map[member.ID]*eviction)
		}
		e.of[id] = x
		e.mu.Unlock()
		e.run(ctx, l, id, x)
		return x.gone
	}
	e.mu.Unlock()
	select {
	case <-x.done:
		return x.gone
	case <-ctx.Done():
		return false
	}
}

func (e *evictions) run(ctx context.Context, l *Locker, id member.ID, x *eviction) {
	defer close(x.done)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.bound()) // others wait for it, too
	defer cancel()
	gone, err := l.engine.Evict(ctx, id)
	x.gone = gone && err == nil
	if x.gone {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of[id] == x {
		delete(e.of, id) // whoever comes next tries again
	}
}
