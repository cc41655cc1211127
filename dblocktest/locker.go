package dblocktest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/memlease"
)

// LeaseOptions of a LeaseLocker, as those of pglock.LeaseOptions and mysqllock.LeaseOptions. The
// zero value is good for use.
type LeaseOptions struct {
	// TTL is after how long without a heartbeat a process counts as dead, and others may have what
	// it held. A heartbeat is sent every third of it. Default 10 s; 1 s to 24 h.
	TTL time.Duration

	// Margin is by how much earlier than the server a process itself believes so. Default a tenth
	// of TTL; less than half of it.
	Margin time.Duration

	// Poll is how often a process asks again for a key that it waits for, give or take a half. It
	// is woken before that when the key is released. Default 1 s; 10 ms to 1 min.
	Poll time.Duration

	// Label describes the locks of this process for operators, as WithLabel does for one lock.
	Label string

	// Fair serves first come, first served, across processes; see pglock.LeaseOptions.
	Fair bool

	Observer dblock.Observer
}

// LeaseLocker acquires lease locks, as a process of its own does. Make it with New or
// Server.NewLeaseLocker. It is safe for concurrent use.
type LeaseLocker struct {
	server *Server
	share  *lease.Share[*memlease.Driver]
	locker *lease.Locker
	leave  func(context.Context) error

	mu    sync.Mutex
	locks map[*dblock.Lock]struct{} // those that have not ended
	fails []error                   // the errors of the next calls
	mute  time.Time                 // until when no heartbeat gets through

	unresolved atomic.Bool // since a call failed with ErrOutcomeUnknown, until the next heartbeat
}

var _ dblock.Locker = (*LeaseLocker)(nil)

// New makes a LeaseLocker on a Server of its own, with the machine's clock and defaults, and closes
// it when the test ends. A lock that is not released then, nor within a second, fails the test.
func New(t testing.TB) *LeaseLocker {
	t.Helper()
	l, err := NewServer(nil).NewLeaseLocker(LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("dblocktest: %v", err)
		}
	})
	return l
}

// NewLeaseLocker makes a LeaseLocker: another process with a heartbeat of its own. Close it.
//
// Errors: dblock.ErrInvalid.
func (s *Server) NewLeaseLocker(o LeaseOptions) (*LeaseLocker, error) {
	lo, err := lease.Options{Label: o.Label, Observer: o.Observer, Clock: s.clock, Poll: o.Poll, Fair: o.Fair}.WithDefaults("LeaseOptions", time.Second)
	if err != nil {
		return nil, err
	}
	m, err := member.Options{TTL: o.TTL, Margin: o.Margin, Label: o.Label, Clock: s.clock}.WithDefaults("LeaseOptions")
	if err != nil {
		return nil, err
	}
	l := &LeaseLocker{server: s, locks: make(map[*dblock.Lock]struct{})}
	rows := s.rows.Open()
	rows.Disturb(l.disturb)
	var own lease.Shares[struct{}, *memlease.Driver]
	l.share, err = own.Open(struct{}{}, m, func() (*memlease.Driver, lease.Backend, error) { return rows, rows.Backend(), nil })
	if err != nil {
		return nil, err
	}
	l.locker = lease.New(l.share, lo)
	l.leave = own.Leaver(struct{}{})
	return l, nil
}

// Acquire waits for the lock of key while ctx lives. See dblock.Locker.
func (l *LeaseLocker) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	return l.noted(l.locker.Acquire(ctx, key, opts...))
}

// TryAcquire never waits for a holder. See dblock.Locker.
func (l *LeaseLocker) TryAcquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	return l.noted(l.locker.TryAcquire(ctx, key, opts...))
}

// noted keeps what was acquired in mind, until it ends.
func (l *LeaseLocker) noted(lock *dblock.Lock, err error) (*dblock.Lock, error) {
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.locks[lock] = struct{}{}
	l.mu.Unlock()
	context.AfterFunc(lock.Context(), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.locks, lock)
	})
	return lock, nil
}

// AcquireAll waits, while ctx lives, until it has all of several keys at once: at most
// dblock.MaxSetKeys, in whatever order, each once. It never has a part of them, so no call
// waits for a waiting call. One Release releases all, at once; if one is lost, all are.
// Lock.Fences has a fence for each key. Sets of this process that wait for the same key ask for it
// in turn. Among other calls a set has no place in a queue: if single keys of it are wanted all the
// time, it may wait for long.
//
// Errors: those of dblock.Locker's Acquire.
func (l *LeaseLocker) AcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error) {
	return l.noted(l.locker.AcquireAll(ctx, keys, opts...))
}

// TryAcquireAll is AcquireAll that never waits for a holder: a *dblock.HeldError names the holder
// of one of the keys.
func (l *LeaseLocker) TryAcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error) {
	return l.noted(l.locker.TryAcquireAll(ctx, keys, opts...))
}

// Caps says what leases promise. These count as durable: a Server does not crash.
func (l *LeaseLocker) Caps() dblock.Caps {
	caps := l.locker.Caps()
	caps.Durable = true
	return caps
}

// Clock is the clock of its Server. What is built on the Locker, a dblock.Elector or a
// dblock.Quorum, goes by it too.
func (l *LeaseLocker) Clock() clock.Clock { return l.server.clock }

// Close ends the contexts of all locks, waits, while ctx lives, until they are released, and
// leaves: the heartbeat ends, and all that is left is free.
func (l *LeaseLocker) Close(ctx context.Context) error {
	return errors.Join(l.locker.Close(ctx), l.leave(ctx))
}

// Held lists the locks that are held now on the Server, by all its LeaseLockers, sorted by key.
func (l *LeaseLocker) Held(ctx context.Context) ([]dblock.HeldLock, error) { return l.locker.List(ctx) }

// Holder reads the holder of a key, with the data of WithData. The exclusive holder comes first. Of
// the holders of a shared key, or of a semaphore, it returns any one, with its Mode; Held lists
// all. With dblock.ErrNotHeld it returns the token of the key's last acquisition; 0 if there was
// none.
//
// Errors: dblock.ErrNotHeld if no living process holds it; dblock.ErrInvalid.
func (l *LeaseLocker) Holder(ctx context.Context, key string) (dblock.HeldLock, error) {
	return l.locker.Holder(ctx, key)
}

// ForceRelease releases a lock of another process, if the token is right (see Held). The holder
// learns of it at its next request or guard, and not before. Lose notifies the holder.
//
// Errors: dblock.ErrNotHeld if the key is not held, or not with that token; dblock.ErrInvalid.
func (l *LeaseLocker) ForceRelease(ctx context.Context, key string, token int64) error {
	return l.locker.ForceRelease(ctx, key, token)
}

// SetPermits gives a semaphore another number of permits, 1 to dblock.MaxPermits, and makes it if
// there is none. Those that are held stay so; none is granted past the new number.
//
// Errors: dblock.ErrInvalid.
func (l *LeaseLocker) SetPermits(ctx context.Context, key string, limit int) error {
	return l.locker.SetPermits(ctx, key, limit)
}

// Sweep removes rows that were not used for an hour. It returns how many rows a database would have
// removed.
func (l *LeaseLocker) Sweep(ctx context.Context) (removed int64, err error) {
	return l.locker.Sweep(ctx)
}

// RunSweeper sweeps every so often, at least 1 s, until ctx ends; then it returns the context's
// error.
//
// Errors: the context's; dblock.ErrClosed, dblock.ErrInvalid.
func (l *LeaseLocker) RunSweeper(ctx context.Context, every time.Duration) error {
	return l.locker.RunSweeper(ctx, every)
}
