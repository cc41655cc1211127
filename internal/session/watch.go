package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
)

// Watcher is an Engine whose server tells nobody of what is given back, but looks at it for one who asks.
type Watcher interface {
	// Watch makes a connection for that. Its error matches dblock.ErrUnsupported where there is none to spare.
	Watch(ctx context.Context) (Watch, error)
}

// Watch is such a connection.
type Watch interface {
	// Look returns those of some locks that are free, as soon as one is; none where d has passed before.
	Look(ctx context.Context, ids []ID, d time.Duration) (free []ID, err error)
	Close()
}

const (
	mostWatched = 100 // locks that the server looks at for one process; the others are polled for

	// A look takes this long while locks come that are not watched yet, for they have to wait for its end, and
	// twice as long each time when none comes.
	shortestLook = 50 * time.Millisecond
	longestLook  = 800 * time.Millisecond

	// lingers is how long a connection is kept when nobody waits any more: somebody often does soon.
	lingers = time.Second
)

// watch has the server look at what is waited for, until the Locker is closed. While nobody waits it uses no connection.
func (l *Locker) watch(by Watcher) {
	for n := 0; l.awaitNews(nil); {
		err := l.watchFor(by, func() { n = 0 })
		l.watches.Store(false)
		if errors.Is(err, dblock.ErrUnsupported) {
			return
		}
		if err != nil {
			n++
			l.signalNews() // those who wait still do
			timer := time.NewTimer(l.o.Draw(time.Second << min(n, 5)))
			select {
			case <-timer.C:
			case <-l.ending.Done():
				timer.Stop()
			}
		}
	}
}

// awaitNews waits until somebody waits for a lock; false where the Locker is closed, or until comes before.
func (l *Locker) awaitNews(until <-chan time.Time) bool {
	select {
	case <-l.ending.Done():
		return false
	default:
	}
	select {
	case <-l.news:
		return true
	case <-until:
		return false
	case <-l.ending.Done():
		return false
	}
}

func (l *Locker) signalNews() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// watchFor does so on one connection, until nobody waits or the connection breaks. ok is called when the server has looked.
func (l *Locker) watchFor(by Watcher, ok func()) error {
	watch, err := by.Watch(l.ending)
	if err != nil {
		return err
	}
	defer watch.Close()
	watched := make(map[ID]bool)
	for d := shortestLook; l.ending.Err() == nil; {
		ids := l.waitedFor()
		if len(ids) == 0 {
			idle := time.NewTimer(lingers)
			comes := l.awaitNews(idle.C)
			idle.Stop()
			if !comes {
				return nil
			}
			continue
		}
		if slices.ContainsFunc(ids, func(id ID) bool { return !watched[id] }) {
			d = shortestLook
		}
		clear(watched)
		for _, id := range ids {
			watched[id] = true
		}
		free, err := watch.Look(l.ending, ids, d)
		if err != nil {
			return err
		}
		ok()
		l.watches.Store(true)
		d = min(2*d, longestLook)
		for _, id := range free {
			l.heard(id)
		}
		if len(free) > 0 { // whoever was told asks for it now
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// waitedFor returns locks that other sessions had when callers asked.
func (l *Locker) waitedFor() (ids []ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, sl := range l.slots {
		if len(ids) < mostWatched && !sl.has && len(sl.queue) > 0 && sl.queue[0].refused {
			ids = append(ids, id)
		}
	}
	return ids
}
