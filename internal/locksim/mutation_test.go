package locksim

import (
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// mutation is a protection that a simulation takes away.
type mutation string

const (
	none    mutation = ""
	beat    mutation = "the heartbeat number check"            // a statement takes effect however late it arrives.
	expiry  mutation = "the expiry predicate"                  // a member is evicted that is alive.
	margin  mutation = "the trust margin"                      // a process trusts a lock until the server would end it.
	handOff mutation = "the hand-over fence"                   // a lock is handed over that is another one's by now.
	handle  mutation = "the handle of a release"               // a release frees a lock that is another one's by now.
	certain mutation = "the repetition of unresolved releases" // a release that found nothing is not repeated.
	recheck mutation = "the search for forgotten releases"     // the server says that a member holds nothing.
	inTurn  mutation = "the tickets' precedence"               // a call that has no ticket comes first.
	undo    mutation = "the undoing of statements that failed" // the server says that nothing of them stands.
	guard   mutation = "the guard of writes"                   // a write is accepted whatever its fence.
)

// by changes on whose behalf a statement asks.
func (m mutation) by(by lease.By) lease.By {
	if m == beat {
		by.Heartbeat += 1 << 40
	}
	return by
}

// ask changes what is asked for.
func (m mutation) ask(w *world, a lease.AcquireRequest) lease.AcquireRequest {
	if m == handOff && a.Instead != (lease.Handle{}) {
		a.Instead = w.holderOf(a.Key)
	}
	if m == inTurn {
		a.NoTickets = false
	}
	return a
}

// answer changes the answers to a process.
func (m mutation) answer(by lease.By, a lease.AcquireResult) lease.AcquireResult {
	if m == expiry && a.Holder.Member != (member.ID{}) && a.Holder.Member != by.Member {
		a.Holder.Dead = true
	}
	return a
}

// back changes what is released.
func (m mutation) back(w *world, b lease.ReleaseRequest) lease.ReleaseRequest {
	if m == handle {
		b.Handle, b.Token = w.holderOf(b.Key), 0
	}
	return b
}

// returned changes the answers to releases.
func (m mutation) returned(r lease.ReleaseResult, reconciles bool) lease.ReleaseResult {
	if m == certain && reconciles {
		r.Freed = true
	}
	return r
}

// holderOf is the handle that has a key alone.
func (w *world) holderOf(key string) lease.Handle {
	listed, _ := w.rows.List(bg, key)
	for _, l := range listed {
		if l.Mode == 0 {
			return l.Handle
		}
	}
	return lease.Handle{}
}
