package inventory

import (
	"sync"
	"time"
)

// keysInUse are keys that transactions of others write and have not committed. A change of such a
// key does not share a statement with changes of other keys.
type keysInUse struct {
	mu    sync.Mutex
	until map[string]time.Time
}

const (
	openFor     = 2 * time.Second // after which a key that was found open counts as any other
	openToPrune = 1000            // of so many keys those are forgotten whose time is up
)

// found notes a key that is open.
func (o *keysInUse) found(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.until == nil || len(o.until) >= openToPrune {
		left := make(map[string]time.Time)
		for k, until := range o.until {
			if until.After(now) {
				left[k] = until
			}
		}
		o.until = left
	}
	o.until[key] = now.Add(openFor)
}

// has reports whether a key was found open lately.
func (o *keysInUse) has(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.until[key].After(time.Now())
}
