package lease

import (
	"context"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/member"
)

// evictions are of members that were seen to be dead. Each is evicted once, regardless of how many
// of its leases are wanted, and again evictAgain later if one of them is still its own: a
// transaction that guards it may be stuck (see Driver.Evict).
type evictions struct {
	mu sync.Mutex
	of map[member.ID]*eviction
}

type eviction struct {
	done    chan struct{}
	evicted bool      // for good; read these after done
	at      time.Time // when that was known
}

const evictAgain = time.Second

// old reports whether an eviction has ended some time ago.
func (x *eviction) old(now time.Time) bool {
	select {
	case <-x.done:
		return now.Sub(x.at) > evictAgain
	default:
		return false
	}
}

// maxEvictions bounds how many are remembered.
const maxEvictions = 64

// evict deletes a member that has expired, and reports whether the member is gone for good.
func (e *evictions) evict(ctx context.Context, q *requester, id member.ID) (gone bool) {
	e.mu.Lock()
	x := e.of[id]
	if x == nil || x.old(q.o.Clock.Now()) {
		x = &eviction{done: make(chan struct{})}
		if e.of == nil || len(e.of) >= maxEvictions {
			e.of = make(map[member.ID]*eviction)
		}
		e.of[id] = x
		if !q.background(func() { e.run(context.WithoutCancel(ctx), q, id, x) }) { // others wait for it, too
			delete(e.of, id)
			close(x.done)
		}
	}
	e.mu.Unlock()
	select {
	case <-x.done:
		return x.evicted
	case <-ctx.Done():
		return false
	}
}

func (e *evictions) run(ctx context.Context, q *requester, id member.ID, x *eviction) {
	defer close(x.done)
	ctx, cancel := context.WithTimeout(ctx, q.bound())
	defer cancel()
	gone, err := q.Driver.Evict(ctx, id)
	x.evicted, x.at = gone && err == nil, q.o.Clock.Now()
	if x.evicted {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of[id] == x {
		delete(e.of, id) // the next call tries again
	}
}
