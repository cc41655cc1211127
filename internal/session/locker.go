package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/root"
)

// Locker is a dblock.Locker of session locks. It is safe for concurrent use.
type Locker struct{ *callers }

var _ dblock.Locker = (*Locker)(nil)

// New makes a Locker, and its first connection; o has its defaults. Its errors are those of
// Driver.Open, and those of a server that can't be reached.
func New(ctx context.Context, d Driver, o Options) (*Locker, error) {
	b := &base{driver: d, o: o}
	b.ending, b.end = context.WithCancelCause(context.Background())
	sl := &slots{
		base: b, sessions: &sessions{base: b}, holds: &holds{base: b, single: make(map[*hold]struct{})}, all: make(map[ID]*slot),
	}
	sl.owner = sl
	wt := &watcher{slots: sl, calls: make(chan struct{}, 1)}
	l := &Locker{&callers{slots: sl, watcher: wt}}
	b.self = l
	if err := sl.openFirst(ctx); err != nil {
		return nil, err
	}
	b.keeps.Go(keyNotes{sl}.run)
	if by, ok := d.(WatchDriver); ok && !o.ServerQueue {
		b.keeps.Go(func() { wt.run(by) })
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
		return l.observed(ctx, &r, serverQueue{l.callers}.wait)
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

// observed checks a request, acquires the lock and calls the Observer.
func (l *Locker) observed(
	ctx context.Context, r *root.Request, acquire func(context.Context, *root.Request, ID) (*dblock.Lock, error),
) (*dblock.Lock, error) {
	id, err := l.check(r)
	if err != nil {
		return nil, err
	}
	if lock, err := root.Reenter(ctx, l, *r); lock != nil || err != nil {
		return lock, err
	}
	if l.o.Observer.Acquired == nil && l.o.Observer.NotAcquired == nil {
		return acquire(ctx, r, id)
	}
	began := time.Now()
	lock, err := acquire(ctx, r, id)
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
	return l.driver.ID(r.Key)
}

// Close refuses further calls, ends the contexts of all locks, waits, while ctx lives, until they
// are released, and closes the connections, which frees what is left.
func (l *Locker) Close(ctx context.Context) error {
	none := l.close()
	l.end(fmt.Errorf("%w", dblock.ErrClosed))
	l.loseAll()
	return errors.Join(clock.Await(ctx, none, "locks are still in use"), l.endSessions(ctx))
}

// endSessions ends all sessions, and waits for what is under way on them.
func (l *Locker) endSessions(ctx context.Context) error {
	l.awaitIdle(ctx)
	l.mu.Lock()
	all := slices.Clone(l.shared)
	for h := range l.single {
		all = append(all, h.session)
	}
	l.mu.Unlock()
	for _, s := range all {
		s.lose(dblock.ReasonClosed)
	}
	ctx, stop := clock.Late(ctx)
	defer stop()
	for _, s := range all {
		if err := clock.Await(ctx, s.closed, "connections are still being closed"); err != nil {
			return err
		}
	}
	l.keeps.Wait()
	return nil
}
