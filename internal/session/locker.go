package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/root"
)

// Locker is a dblock.Locker of session locks. It is safe for concurrent use.
type Locker struct {
	engine Engine
	o      Options
	pace   pace.Pace

	mu       sync.Mutex
	sessions []*session // that many locks share
	conns    int        // those, those that one caller has for itself, and those that are being opened
	opening  *opening   // a session that will be shared
	slots    map[ID]*slot
	alone    map[*hold]struct{} // what has a session for itself
	holds    int                // that are not released
	closed   bool
	empty    chan struct{} // closed when no hold is left; made by Close
	wakers   sync.Pool     // see waker

	ending  context.Context
	end     context.CancelCauseFunc
	news    chan struct{}  // holds one: somebody waits who did not before
	watches atomic.Bool    // the server looks at what is waited for
	keeps   sync.WaitGroup // what goes on for as long as a session, or the Locker, does

	running int           // what is done in the background and ends by itself; guarded by mu
	idle    chan struct{} // closed when there is nothing of that; made by hangUp
}

var _ dblock.Locker = (*Locker)(nil)

// New makes a Locker, and its first connection; o has its defaults. Its errors are those of Engine.Open, and those that say
// that the server can't be reached.
func New(ctx context.Context, e Engine, o Options) (*Locker, error) {
	l := &Locker{engine: e, o: o, slots: make(map[ID]*slot), alone: make(map[*hold]struct{}), news: make(chan struct{}, 1)}
	l.ending, l.end = context.WithCancelCause(context.Background())
	s, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	l.conns, l.sessions = 1, []*session{s}
	s.begin()
	l.keeps.Go(l.noteKeys)
	if by, ok := e.(Watcher); ok && !o.ServerQueue {
		l.keeps.Go(func() { l.watch(by) })
	}
	return l, nil
}

// Caps says what session locks promise.
func (l *Locker) Caps() dblock.Caps {
	return dblock.Caps{
		Shared: l.o.Shared, Fair: l.o.ServerQueue, NotDurable: "locks of sessions end with the server's process",
	}
}

// Acquire waits for the lock of key while ctx lives.
func (l *Locker) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	r, err := root.NewRequest(key, opts)
	if err != nil {
		return nil, err
	}
	if l.o.ServerQueue {
		return l.observed(ctx, &r, l.waitAtServer)
	}
	return l.observed(ctx, &r, l.wait)
}

// TryAcquire never waits for a holder.
func (l *Locker) TryAcquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	r, err := root.NewRequest(key, opts)
	if err != nil {
		return nil, err
	}
	return l.observed(ctx, &r, l.try)
}

// observed is what Acquire and TryAcquire have in common.
func (l *Locker) observed(
	ctx context.Context, r *root.Request, how func(context.Context, *root.Request, ID) (*dblock.Lock, error),
) (*dblock.Lock, error) {
	id, err := l.check(r)
	if err != nil {
		return nil, err
	}
	if lock, err := root.Reenter(ctx, l, *r); lock != nil || err != nil {
		return lock, err
	}
	if l.o.Observer.Acquired == nil && l.o.Observer.NotAcquired == nil {
		return how(ctx, r, id)
	}
	began := time.Now()
	lock, err := how(ctx, r, id)
	waited := time.Since(began)
	if err == nil && l.o.Observer.Acquired != nil {
		l.o.Observer.Acquired(r.Key, waited)
	}
	if err != nil && l.o.Observer.NotAcquired != nil {
		l.o.Observer.NotAcquired(r.Key, waited, err)
	}
	return lock, err
}

// check refuses what a server's own locks can't do.
func (l *Locker) check(r *root.Request) (ID, error) {
	lacks := ""
	switch {
	case r.Mode == dblock.ModePermit:
		lacks = "permits (WithPermits)"
	case r.Mode == dblock.ModeShared && !l.o.Shared:
		lacks = "shared locks on this server (WithShared)"
	case r.MaxHold != nil:
		lacks = "an end of their own (WithMaxHold, WithoutRenewal)"
	case r.Data != nil:
		lacks = "data (WithData)"
	}
	if lacks != "" {
		return "", fmt.Errorf("%w: session locks have no %s: leases have them (NewLeaseLocker)", dblock.ErrUnsupported, lacks)
	}
	return l.engine.ID(r.Key)
}

func errClosed() error { return fmt.Errorf("%w: nothing was locked", dblock.ErrClosed) }

// Close refuses further calls, ends the contexts of all locks, waits, while ctx lives, until they are released, and closes
// the connections, which frees whatever is left.
func (l *Locker) Close(ctx context.Context) error {
	l.mu.Lock()
	if l.empty == nil {
		l.closed = true
		l.empty = make(chan struct{})
		if l.holds == 0 {
			close(l.empty)
		}
	}
	all := slices.Collect(maps.Keys(l.alone))
	for _, sl := range l.slots {
		all = append(all, sl.users...)
	}
	empty := l.empty
	l.mu.Unlock()
	l.end(fmt.Errorf("%w", dblock.ErrClosed))
	tells := make([]func(), len(all))
	for i, h := range all {
		tells[i] = h.lose(dblock.ReasonClosed)
	}
	for _, tell := range tells {
		tell()
	}
	return errors.Join(clock.Await(ctx, empty, "locks are still in use"), l.hangUp(ctx))
}

// hangUp ends all sessions, and waits for what is under way on them.
func (l *Locker) hangUp(ctx context.Context) error {
	l.mu.Lock()
	if l.idle == nil {
		l.idle = make(chan struct{})
		l.ran(0)
	}
	idle := l.idle
	l.mu.Unlock()
	select { // what is being given back may still be
	case <-idle:
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	l.mu.Lock()
	all := slices.Clone(l.sessions)
	for h := range l.alone {
		all = append(all, h.s)
	}
	l.mu.Unlock()
	for _, s := range all {
		s.lose(dblock.ReasonClosed)
	}
	ctx, stop := clock.Late(ctx)
	defer stop()
	for _, s := range all {
		if err := clock.Await(ctx, s.gone, "connections are still being closed"); err != nil {
			return err
		}
	}
	l.keeps.Wait()
	return nil
}

// background does something that ends by itself; l.mu is held.
func (l *Locker) background(do func()) {
	l.running++
	go func() {
		do()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ran(1)
	}()
}

// ran notes what has ended; l.mu is held.
func (l *Locker) ran(n int) {
	l.running -= n
	if l.running == 0 && l.idle != nil {
		select {
		case <-l.idle:
		default:
			close(l.idle)
		}
	}
}

// drop forgets a hold that nobody uses any more; l.mu is held.
func (l *Locker) drop(h *hold) {
	if h.dropped {
		return
	}
	h.dropped = true
	l.holds--
	delete(l.alone, h)
	if l.empty != nil && l.holds == 0 {
		select {
		case <-l.empty:
		default:
			close(l.empty)
		}
	}
}
