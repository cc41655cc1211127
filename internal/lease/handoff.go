package lease

import (
	"context"

	"github.com/dblock-go/dblock"
)

// granted is a lease that was granted and has no hold yet: the holder before has handed it over, or
// readers still have the key.
type granted struct{ reply }

func (r reply) given() *granted { return &granted{r} }

func (g *granted) undo() ReleaseRequest { return g.request.undo(dblock.ModeExclusive) }

// handOff gives a lease to the next waiter in one statement. If it returns false, the lease is to
// be released. certain reports that the lease is unchanged then: the statement has not failed. Only
// the database knows whether other processes wait. It is asked when the process has had its turn.
func (s *holds) handOff(ctx context.Context, h *hold) (handed, certain bool) {
	if !h.inc.Alive() {
		return false, true
	}
	if s.queues.next(h.waiter, false) == nil {
		return false, true
	}
	if s.queues.hadItsShare(h.waiter) && s.waits.others(ctx, h.key(), h.inc) {
		s.queues.yield(h.waiter)
		return false, true
	}
	next := s.queues.next(h.waiter, true) // others() has taken a round trip: the waiter may have left since
	if next == nil {
		return false, true
	}
	g := reply{request: s.asked(next.request), inc: h.inc, sent: s.o.Clock.Now()}.given()
	g.request.Instead, g.request.Contended = h.fences[0].Handle, false
	answer, err := s.acquires[dblock.ModeExclusive].Do(ctx, acquisition{g.request, h.inc})
	unresolved := err != nil && s.mayBeHeld(err)
	s.answered(h.inc, err, answer.Token != 0, g.undo())
	if err != nil || answer.Token == 0 {
		s.queues.notGiven(next, unresolved)
		return false, err == nil
	}
	s.reconciler.handles.remove(g.request.Instead) // its row is the next one's
	g.AcquireResult = answer
	if !s.queues.give(next, g) {
		_, _ = s.releaseNow(ctx, g.inc, g.undo())
	}
	return true, true
}
