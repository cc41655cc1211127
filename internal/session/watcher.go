package session

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
)

// WatchDriver is a Driver of a server that sends no notifications, but can watch locks in a
// statement.
type WatchDriver interface {
	// Watch opens a connection for that. The error matches dblock.ErrUnsupported if there is none
	// to spare.
	Watch(ctx context.Context) (Watch, error)
}

// Watch is such a connection.
type Watch interface {
	// Watch returns those of some locks that are free, as soon as one is. It returns none if d has
	// passed.
	Watch(ctx context.Context, ids []ID, d time.Duration) (free []ID, err error)
	Close()
}

const (
	maxWatched = 100 // locks that the server watches for one process; calls poll for the others

	// A look takes minWatch if there are locks that were not in the last one, as others have to
	// wait for its end. Each look without one takes twice as long, up to maxWatch.
	minWatch = 50 * time.Millisecond
	maxWatch = 800 * time.Millisecond

	// keptFor is how long the connection is kept while no call waits.
	keptFor = time.Second
)

// watcher has the server watch the locks for which calls wait.
type watcher struct {
	*slots
	calls  chan struct{} // holds one: a new call waits
	active atomic.Bool   // the server watches
}

// run watches until the Locker is closed. While no call waits it uses no connection.
func (wt *watcher) run(by WatchDriver) {
	for n := 0; wt.awaitCall(nil); {
		err := wt.watch(by, func() { n = 0 })
		wt.active.Store(false)
		if errors.Is(err, dblock.ErrUnsupported) {
			return
		}
		if err != nil {
			n++
			wt.wake() // the calls still wait
			timer := time.NewTimer(wt.o.Draw(time.Second << min(n, 5)))
			select {
			case <-timer.C:
			case <-wt.ending.Done():
				timer.Stop()
			}
		}
	}
}

// awaitCall waits until a call waits for a lock. It returns false if the Locker is closed, or until
// comes first.
func (wt *watcher) awaitCall(until <-chan time.Time) bool {
	select {
	case <-wt.ending.Done():
		return false
	default:
	}
	select {
	case <-wt.calls:
		return true
	case <-until:
		return false
	case <-wt.ending.Done():
		return false
	}
}

// wake has the watcher look for calls that wait.
func (wt *watcher) wake() { wake(wt.calls) }

// watch uses one connection until no call waits or the connection breaks. It calls ok after each
// look of the server.
func (wt *watcher) watch(by WatchDriver, ok func()) error {
	watch, err := by.Watch(wt.ending)
	if err != nil {
		return err
	}
	defer watch.Close()
	watched := make(map[ID]bool)
	for d := minWatch; wt.ending.Err() == nil; {
		ids := wt.awaited()
		if len(ids) == 0 {
			idle := time.NewTimer(keptFor)
			comes := wt.awaitCall(idle.C)
			idle.Stop()
			if !comes {
				return nil
			}
			continue
		}
		if slices.ContainsFunc(ids, func(id ID) bool { return !watched[id] }) {
			d = minWatch
		}
		clear(watched)
		for _, id := range ids {
			watched[id] = true
		}
		free, err := watch.Watch(wt.ending, ids, d)
		if err != nil {
			return err
		}
		ok()
		wt.active.Store(true)
		d = min(2*d, maxWatch)
		for _, id := range free {
			wt.released(id)
		}
		if len(free) > 0 { // the calls that were notified ask now
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// awaited returns locks that other sessions had when callers asked.
func (wt *watcher) awaited() (ids []ID) {
	wt.mu.Lock()
	defer wt.mu.Unlock()
	for id, sl := range wt.all {
		if len(ids) < maxWatched && !sl.has && len(sl.queue) > 0 && sl.queue[0].refused {
			ids = append(ids, id)
		}
	}
	return ids
}
