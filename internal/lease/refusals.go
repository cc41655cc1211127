package lease

import (
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/sqlerr"
)

// refusedEvery is how often a refusal of one class is written to the Log.
const refusedEvery = time.Minute

// refusals holds when the last refusal of each class was written. The zero value is ready for use.
type refusals struct {
	mu   sync.Mutex
	last map[sqlerr.Class]time.Time
}

// due reports whether a refusal of a class is to be written now.
func (r *refusals) due(c sqlerr.Class, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, has := r.last[c]; has && now.Sub(at) < refusedEvery {
		return false
	}
	if r.last == nil {
		r.last = make(map[sqlerr.Class]time.Time)
	}
	r.last[c] = now
	return true
}

// refusal returns err if the server has refused a release for a reason that does not pass by
// itself, and writes it to the Log. It returns nil for any other error.
func (r *reconciler) refusal(err error) error {
	if err == nil {
		return nil
	}
	switch c := r.traits.Classify(err); c {
	case sqlerr.Unclassified, sqlerr.BadInput, sqlerr.NoSchema, sqlerr.NotPermitted, sqlerr.Duplicate:
		if r.refusals.due(c, r.clock.Now()) {
			r.member.Warn("dblock: the server refuses to release locks; they stay held, and the release is repeated", "error", err)
		}
		return err
	}
	return nil
}
