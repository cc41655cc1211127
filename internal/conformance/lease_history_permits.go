package conformance

import (
	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock"
)

// permitted is the state of a semaphore. Who asks names the number of permits that it knows, which must be the
// semaphore's at some time while it asks. What it gets must fit into that number with all that is held then, also
// where there were more before.
type permitted struct {
	limit, held int
}

func (p permitted) next(s step) []state {
	switch {
	case s.what == believed && p.limit == s.limit:
	case s.what == granted && p.held+s.permits <= s.limit:
		p.held += s.permits
	case s.what == left && p.held >= s.permits:
		p.held -= s.permits
	case s.what == limited:
		p.limit = s.limit
	case s.what == doubtful:
		return []state{p, permitted{limit: s.limit, held: p.held}}
	default:
		return nil
	}
	return []state{p}
}

// forgedPermits are histories with one step that no semaphore would have done.
func (h *history) forgedPermits() map[string][]porcupine.Operation {
	grant, _, some := h.first(func(s step) bool { return s.what == granted })
	if !some {
		return nil
	}
	back, all := grant, step{what: granted, key: grant.key, permits: 3, limit: 3}
	back.what = left
	one, fewer := all, all
	one.permits = 1
	fewer.permits, fewer.limit = 1, 2
	return map[string][]porcupine.Operation{
		"one permit too many":            h.and(all, one),
		"one beside more than there are": h.and(all, fewer),
		"a permit given back twice":      h.and(back),
		"a number that it never had":     h.and(step{what: believed, key: grant.key, limit: dblock.MaxPermits}),
		"more than all":                  h.and(step{what: granted, key: grant.key, permits: 4, limit: 3}),
	}
}
