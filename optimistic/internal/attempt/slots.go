package attempt

import (
	"context"
	"sync"

	"github.com/dblock-go/dblock/internal/ctxerr"
)

// slots are of the attempts that may hold a connection of a pool while they wait for a row's lock,
// or have it. All but one of the pool's connections: the attempt that has the lock needs one more
// if its mutate uses the pool. All others would wait for the lock, and it for a connection.
type slots struct {
	pool  any
	taken chan struct{}
	users int // guarded by pools.mu
}

// pools have slots while an update with a lock is under way, by pool.
var pools = struct {
	mu sync.Mutex
	of map[any]*slots
}{of: make(map[any]*slots)}

// enter returns the slots of a pool that may have that number of connections. It returns nil, which
// bounds nothing, if there is no pool or no bound. Call leave when they are no longer needed.
func enter(pool any, connections int) *slots {
	if pool == nil || connections <= 0 {
		return nil
	}
	pools.mu.Lock()
	defer pools.mu.Unlock()
	s := pools.of[pool]
	if s == nil {
		s = &slots{pool: pool, taken: make(chan struct{}, max(1, connections-1))}
		pools.of[pool] = s
	}
	s.users++
	return s
}

func (s *slots) leave() {
	if s == nil {
		return
	}
	pools.mu.Lock()
	defer pools.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(pools.of, s.pool)
	}
}

// take waits for a slot while ctx lives.
func (s *slots) take(ctx context.Context) error {
	if s == nil {
		return nil
	}
	select {
	case s.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	}
}

func (s *slots) put() {
	if s != nil {
		<-s.taken
	}
}

// in returns the context of an attempt that has a slot: it keeps others waiting.
func (s *slots) in(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return deeper(ctx)
}
