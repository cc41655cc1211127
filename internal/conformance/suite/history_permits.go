package suite

import (
	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock"
)

// Permitted is the state of a semaphore. Who asks names the number of permits that it knows, which must be the
// semaphore's at some time while it asks. What it gets must fit into that number with all that is held then, also
// where there were more before.
type Permitted struct {
	Limit, held int
}

func (p Permitted) Next(s Step) []State {
	switch {
	case s.What == Believed && p.Limit == s.Limit:
	case s.What == Granted && p.held+s.Permits <= s.Limit:
		p.held += s.Permits
	case s.What == Left && p.held >= s.Permits:
		p.held -= s.Permits
	case s.What == Limited:
		p.Limit = s.Limit
	case s.What == Doubtful:
		return []State{p, Permitted{Limit: s.Limit, held: p.held}}
	default:
		return nil
	}
	return []State{p}
}

// ForgedPermits are histories with one step that no semaphore would have done.
func (h *History) ForgedPermits() map[string][]porcupine.Operation {
	grant, _, some := h.First(func(s Step) bool { return s.What == Granted })
	if !some {
		return nil
	}
	back, all := grant, Step{What: Granted, Key: grant.Key, Permits: 3, Limit: 3}
	back.What = Left
	one, fewer := all, all
	one.Permits = 1
	fewer.Permits, fewer.Limit = 1, 2
	return map[string][]porcupine.Operation{
		"one permit too many":            h.And(all, one),
		"one beside more than there are": h.And(all, fewer),
		"a permit given back twice":      h.And(back),
		"a number that it never had":     h.And(Step{What: Believed, Key: grant.Key, Limit: dblock.MaxPermits}),
		"more than all":                  h.And(Step{What: Granted, Key: grant.Key, Permits: 4, Limit: 3}),
	}
}
