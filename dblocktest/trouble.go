package dblocktest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Lose takes the lock of key away from this process and notifies it, as when an operator has
// force-released it. When Lose returns, the lock's context is done. Its cause is a
// *dblock.LostError with dblock.ReasonStolen. Server.Check refuses the lock's fence, and the key is
// free. Lose returns false if this process does not hold key.
func (l *LeaseLocker) Lose(key string) bool {
	lock := l.holding(key)
	if lock == nil {
		return false
	}
	for _, f := range lock.Fences() {
		l.server.rows.Admin().Free(f)
	}
	return errors.Is(lock.ExpireIn(context.Background(), time.Hour), dblock.ErrLost) // it asks, and so finds out
}

// holding returns a lock of key that has not ended; nil if there is none.
func (l *LeaseLocker) holding(key string) *dblock.Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	for lock := range l.locks {
		if slices.Contains(lock.Keys(), key) && lock.Context().Err() == nil {
			return lock
		}
	}
	return nil
}

// Evict has the server forget this process, as when others found it dead. Other processes may
// acquire what it held, without waiting for its TTL, except locks WithoutRenewal, which last. Until
// another process has acquired it, Server.Check passes, as a guard would. When Evict returns the
// process knows: the contexts of these locks are done, with a *dblock.LostError that says
// dblock.ReasonEvicted as their cause.
//
// While no heartbeats get through (StopHeartbeats) it does not learn of it: it goes on in good
// faith, as a process does that was paused, while others have its locks.
func (l *LeaseLocker) Evict() {
	inc, err := l.share.Member.Current(context.Background())
	if err != nil {
		return // it is closed, and holds nothing
	}
	ended := make(chan struct{})
	forget := inc.OnEnd(func(dblock.Reason) { close(ended) })
	defer forget()
	var kept []*dblock.Lock
	l.mu.Lock()
	for lock := range l.locks {
		if f := lock.Fences()[0]; l.server.rows.Admin().Keeps(inc.ID, lease.ReleaseRequest{Key: f.Key, Handle: f.Handle, Mode: f.Mode}) {
			kept = append(kept, lock)
		}
	}
	l.mu.Unlock()
	l.server.rows.Admin().DeleteMember(inc.ID)
	for inc.Alive() && !l.muted() {
		inc.CheckSoon()
		select {
		case <-ended:
		case <-time.After(time.Millisecond): // a heartbeat may have been under way that came before
		}
	}
	if inc.Alive() {
		return
	}
	for _, lock := range kept {
		<-lock.Context().Done()
	}
}

// StopHeartbeats keeps all heartbeats of this process from reaching the server, until
// ResumeHeartbeats. Its locks are lost with the reason dblock.ReasonExpired when TTL less Margin
// has passed since the last one that got through, and others may have them when TTL has.
func (l *LeaseLocker) StopHeartbeats() { l.muteUntil(l.server.clock.Now().AddDate(1000, 0, 0)) }

// DelayHeartbeats is StopHeartbeats for d. A heartbeat that fails is repeated, sooner than it would
// otherwise be due.
func (l *LeaseLocker) DelayHeartbeats(d time.Duration) { l.muteUntil(l.server.clock.Now().Add(d)) }

// ResumeHeartbeats lets heartbeats through again. The next one is sent when it is due.
func (l *LeaseLocker) ResumeHeartbeats() { l.muteUntil(time.Time{}) }

func (l *LeaseLocker) muteUntil(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mute = until
}

func (l *LeaseLocker) muted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.server.clock.Now().Before(l.mute)
}

// Fail has the next call that asks the server for a lock, of whatever mode or for a set, return an
// error that matches err, for example dblock.ErrUnavailable, and no other of dblock's errors.
// Called again it is the turn of the call after that. A call that only this process answers, such
// as TryAcquire of what it holds itself, does not ask the server. A call of Acquire that waits asks
// again from time to time. It goes on waiting after dblock.ErrBusy and ErrConflict, as on a
// database. Calls of one moment may ask together, and fail together.
//
// With dblock.ErrOutcomeUnknown the lock is granted if it is free, and the answer is lost: the key
// is held until the next heartbeat, and no caller knows of it. After any other error nothing has
// happened.
func (l *LeaseLocker) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = append(l.fails, err)
}

var (
	errMuted      = errors.New("dblocktest: no heartbeats get through")
	errUnresolved = errors.New("dblocktest: the next heartbeat comes first")
)

// disturb runs around each statement of this process.
func (l *LeaseLocker) disturb(ctx context.Context, call string, run func() error) error {
	switch call {
	case "Heartbeat", "Holding":
		if l.muted() {
			return &memlease.Failure{As: sqlerr.Unavailable, Err: errMuted}
		}
		l.unresolved.Store(false)
	case "Release", "HandOff":
		if l.unresolved.Load() && lease.Reconciles(ctx) {
			return &memlease.Failure{As: sqlerr.Unresolved, Err: errUnresolved}
		}
	case "Acquire", "AcquireShared", "AcquirePermits", "AcquireAll":
		err := l.failure()
		if errors.Is(err, dblock.ErrOutcomeUnknown) {
			l.unresolved.Store(true)
			return &memlease.Failure{As: sqlerr.Unresolved, Err: errors.Join(err, run())}
		}
		if err != nil { // as it is: of a fault that has a class the locker would try again, and add the class
			return &memlease.Failure{As: sqlerr.Unclassified, Err: err}
		}
	}
	return run()
}

// failure takes the error of the next call.
func (l *LeaseLocker) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.fails) == 0 {
		return nil
	}
	err := l.fails[0]
	l.fails = l.fails[1:]
	return err
}
