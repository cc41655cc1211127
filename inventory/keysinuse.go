package inventory

import (
	"sync"
	"time"
)

// keysInUse are names of rows that transactions of others were found to have locked, for a while.
type keysInUse struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// openToPrune is of how many keys those are forgotten whose time is up.
const openToPrune = 1000

// note notes a key that counts as in use for some time.
func (o *keysInUse) note(key string, lasts time.Duration) {
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
	o.until[key] = now.Add(lasts)
}

// has reports whether a key was found in use lately.
func (o *keysInUse) has(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.until[key].After(time.Now())
}
