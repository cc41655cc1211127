package inventory

import (
	"sync"
	"time"
)

// later is what could not be swept, and is tried again after a while.
type later[K comparable] struct {
	mu   sync.Mutex
	keys map[K]postponed
}

type postponed struct {
	times int
	until time.Time
}

const (
	firstPostponed   = 50 * time.Millisecond // it doubles each time
	longestPostponed = time.Minute
	maxPostponed     = 100_000
)

func (l *later[K]) put(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys == nil || len(l.keys) >= maxPostponed {
		l.keys = make(map[K]postponed)
	}
	p := l.keys[key]
	p.until = time.Now().Add(min(longestPostponed, firstPostponed<<min(p.times, 16)))
	p.times++
	l.keys[key] = p
}

// times is how often a key was postponed.
func (l *later[K]) times(key K) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys[key].times
}

func (l *later[K]) done(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.keys, key)
}

// tried are those that were postponed. They are true if it is their turn again. It forgets those
// whose turn was long ago: others have swept them.
func (l *later[K]) tried() map[K]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	tried := make(map[K]bool, len(l.keys))
	for key, p := range l.keys {
		since := time.Since(p.until)
		if since > longestPostponed {
			delete(l.keys, key)
			continue
		}
		tried[key] = since >= 0
	}
	return tried
}
