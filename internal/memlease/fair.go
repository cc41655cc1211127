package memlease

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// ticketRow is a call that waits.
type ticketRow struct {
	by  lease.By
	ask lease.Ask
	n   int64
}

// Enqueue notes a batch of calls that wait.
func (e *Engine) Enqueue(ctx context.Context, by lease.By, asks []lease.Ask) ([]int64, error) {
	tickets := make([]int64, len(asks))
	err := e.call(ctx, "Enqueue", func(s *Server) {
		for i, a := range asks {
			if s.serves(by) {
				s.ticket++
				tickets[i] = s.ticket
				s.tickets[a.Key] = append(s.tickets[a.Key], ticketRow{by, a, s.ticket})
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return tickets, nil
}

// SeeTurn reads what has become of one of them.
func (e *Engine) SeeTurn(ctx context.Context, key string, handle lease.Handle, _ int64) (turn lease.Turn, err error) {
	err = e.call(ctx, "SeeTurn", func(s *Server) {
		now, l := s.clock.Now(), s.leases[key]
		turn.Missing = l == nil
		turn.Waits = slices.ContainsFunc(s.tickets[key], func(t ticketRow) bool { return t.ask.Handle == handle && s.alive(t.by.Member) })
		if !l.held(now) {
			turn.Shared = l != nil && l.shared
			return
		}
		turn.Held, turn.Holder = true, s.holder(&l.grantRow)
		turn.Shared = l.shared && turn.Holder.Dead
		if l.handle == handle && !l.shared {
			turn.Token, turn.Answer.Handle = l.token, l.handle
			if !l.until.IsZero() {
				turn.Left = l.until.Sub(now)
			}
		}
	})
	return turn, err
}

// Serve grants a key that is free.
func (e *Engine) Serve(ctx context.Context, key string, gone member.ID) (served bool, err error) {
	err = e.call(ctx, "Serve", func(s *Server) {
		l := s.leases[key]
		if l != nil && !l.shared && (!l.held(s.clock.Now()) || l.member != member.ID{} && l.member == gone) {
			served = s.next(key)
		}
	})
	return served, err
}

// next makes a key that of the first who waits and is alive; s.mu is held.
func (s *Server) next(key string) bool {
	for len(s.tickets[key]) > 0 {
		t := s.tickets[key][0]
		if s.tickets[key] = s.tickets[key][1:]; len(s.tickets[key]) == 0 {
			delete(s.tickets, key)
		}
		if s.alive(t.by.Member) {
			s.grant(t.by, t.ask)
			s.tell(lease.Told + t.ask.Handle.String())
			return true
		}
	}
	return false
}

// waits tells whether somebody who is alive has a ticket; s.mu is held.
func (s *Server) waits(key string) bool {
	return slices.ContainsFunc(s.tickets[key], func(t ticketRow) bool { return s.alive(t.by.Member) })
}

// PassOn gives back, and grants to who waits.
func (e *Engine) PassOn(ctx context.Context, backs []lease.Back) ([]lease.Returned, error) {
	returned := make([]lease.Returned, len(backs))
	err := e.call(ctx, "PassOn", func(s *Server) {
		for _, b := range lease.MayWait(backs) {
			s.tickets[b.Key] = slices.DeleteFunc(s.tickets[b.Key], func(t ticketRow) bool { return t.ask.Handle == b.Handle })
		}
		for i, b := range backs {
			if returned[i] = s.giveBack(b); returned[i].Freed && !s.leases[b.Key].shared {
				s.next(b.Key)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return returned, nil
}
