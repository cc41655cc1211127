package lease

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
)

const (
	maxWatched = 100 // keys that the server looks at for one process; the others are polled for

	// A look takes this long while keys come that are not watched yet, for they have to wait for
	// its end, and twice as long each time when none comes.
	minWatch = 50 * time.Millisecond
	maxWatch = 800 * time.Millisecond

	// watchIdle is how long a connection is kept after the last call that waited: often another one
	// follows soon.
	watchIdle = time.Second
)

// watch has the server watch the keys for which calls wait, until the process leaves. Without such
// calls it uses no connection.
func (w *Waits) watch(by Watcher) {
	w.watching.Store(true)
	for n := 0; w.ending.Err() == nil; {
		if !w.awaitCall(nil) {
			return
		}
		err := w.watchFor(by, func() {
			n = 0
			w.watching.Store(true)
		})
		if err != nil {
			w.watching.Store(false)
		}
		w.unwatch()
		if errors.Is(err, dblock.ErrUnsupported) {
			return
		}
		if err != nil {
			w.backOff(n)
			n++
			signal(w.calls) // the calls still wait
		}
	}
}

// awaitCall waits until a call waits for a key. It returns false if the process leaves, or until is
// closed before.
func (w *Waits) awaitCall(until <-chan time.Time) bool {
	select {
	case <-w.calls:
		return true
	case <-until:
		return false
	case <-w.ending.Done():
		return false
	}
}

// watchFor uses one connection until no call waits or the connection breaks. It calls ok after each
// look of the server.
func (w *Waits) watchFor(by Watcher, ok func()) error {
	watch, err := by.Watch(w.ending)
	if err != nil {
		return err
	}
	defer watch.Close()
	var recheck recheckPause
	for d := minWatch; ; {
		keys, known, fresh := w.toWatch()
		more, turns := w.fairToWatch(maxWatched - len(keys))
		keys = append(keys, more...)
		if len(keys) == 0 {
			idle := time.NewTimer(watchIdle)
			comes := w.awaitCall(idle.C)
			idle.Stop()
			if !comes {
				return nil
			}
			continue
		}
		if fresh {
			d = minWatch
		}
		seen, err := watch.Watch(w.ending, keys, turns, known, d)
		if err != nil {
			return err
		}
		ok()
		if d = min(2*d, maxWatch); len(seen) == 0 {
			continue
		}
		if err := w.saw(by, seen, &recheck); err != nil {
			return err
		}
	}
}

// toWatch returns the keys for which calls have waited longest, and the states that these calls
// know. The keys are watched from now on. fresh reports that some were not before.
func (w *Waits) toWatch() (keys []string, known []LeaseState, fresh bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, of := range w.keys {
		if len(of.subscriptions) > 0 {
			keys = append(keys, key)
		}
	}
	if len(keys) > maxWatched {
		slices.SortFunc(keys, func(a, b string) int { return w.keys[a].since.Compare(w.keys[b].since) })
		keys = keys[:maxWatched]
	}
	for _, key := range keys {
		of := w.keys[key]
		fresh = fresh || !of.watched
		of.watched = true
		if of.seen != 0 {
			known = append(known, LeaseState{Key: key, Token: of.seen})
		}
	}
	return keys, known, fresh
}

// saw wakes the calls that wait for keys that seem free, and once more when that is certain: a call
// that asked before may have been too early. After that they are not woken until the key was
// acquired again. A state that is not certain is not looked at for a moment that grows, as the
// process that releases may wait for a replica.
func (w *Waits) saw(by Watcher, seen []LeaseState, recheck *recheckPause) error {
	keys := make([]string, len(seen))
	for i, s := range seen {
		keys[i] = s.Key
		w.wake(s.Key)
		w.wakeFair(s)
	}
	ctx, cancel := context.WithTimeout(w.ending, statementBound(w.member))
	defer cancel()
	free, err := by.Free(ctx, keys)
	if err != nil {
		return err
	}
	for _, s := range free {
		w.wakeOnce(s)
	}
	if len(free) > 0 {
		return nil
	}
	timer := time.NewTimer(recheck.pause(seen[0]))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ending.Done():
	}
	return nil
}

// recheckPause is what was seen free last and was not, and how often.
type recheckPause struct {
	of    LeaseState
	times int
}

// pause is for how long nothing is looked at after that: 1 ms at first, 64 ms in the end.
func (d *recheckPause) pause(s LeaseState) time.Duration {
	if d.of != s {
		*d = recheckPause{of: s}
	}
	d.times++
	return time.Millisecond << min(d.times-1, 6)
}

// wakeOnce wakes the calls of a key that is free.
func (w *Waits) wakeOnce(s LeaseState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if of := w.keys[s.Key]; of != nil && of.seen != s.Token {
		of.seen = s.Token
		w.wakeAll(of)
	}
}

// unwatch notes that no key is watched any more. The calls that wait poll from now on.
func (w *Waits) unwatch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, of := range w.keys {
		if of.watched {
			of.watched = false
			w.wakeAll(of)
		}
	}
	for _, t := range w.fair {
		if t.watched {
			t.watched = false
			signal(t.woken)
		}
	}
}
