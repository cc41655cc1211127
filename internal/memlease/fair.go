package memlease

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// ticketRow is a call that waits.
type ticketRow struct {
	by      lease.By
	request lease.AcquireRequest
	n       int64
}

// enqueue notes a call that waits, and returns its ticket; s.mu is held.
func (s *Server) enqueue(by lease.By, r lease.AcquireRequest) int64 {
	if !s.serves(by) {
		return 0
	}
	s.ticket++
	s.tickets[r.Key] = append(s.tickets[r.Key], ticketRow{by, r, s.ticket})
	return s.ticket
}

// Entry reads what has become of one of them.
func (d *Driver) Entry(ctx context.Context, key string, handle lease.Handle, _ int64) (turn lease.QueueEntry, err error) {
	err = d.call(ctx, "ReadTicket", func(s *Server) {
		now, l := s.clock.Now(), s.leases[key]
		turn.Missing = l == nil
		turn.Waits = slices.ContainsFunc(s.tickets[key], func(t ticketRow) bool { return t.request.Handle == handle && s.alive(t.by.Member) })
		if !l.held(now) {
			turn.Shared = l != nil && l.shared
			return
		}
		turn.Held, turn.Holder = true, s.holder(&l.grantRow)
		turn.Shared = l.shared && turn.Holder.Dead
		if l.handle == handle && !l.shared {
			turn.Token, turn.AcquireResult.Handle = l.token, l.handle
			if !l.until.IsZero() {
				turn.Remaining = l.until.Sub(now)
			}
		}
	})
	return turn, err
}

// Serve grants a key that is free.
func (d *Driver) Serve(ctx context.Context, key string, gone member.ID) (served bool, err error) {
	err = d.call(ctx, "Serve", func(s *Server) {
		l := s.leases[key]
		if l != nil && !l.shared && (!l.held(s.clock.Now()) || l.member != member.ID{} && l.member == gone) {
			served = s.next(key)
		}
	})
	return served, err
}

// next gives a key to the first live waiter; s.mu is held.
func (s *Server) next(key string) bool {
	for len(s.tickets[key]) > 0 {
		t := s.tickets[key][0]
		if s.tickets[key] = s.tickets[key][1:]; len(s.tickets[key]) == 0 {
			delete(s.tickets, key)
		}
		if s.alive(t.by.Member) {
			s.grant(t.by, t.request)
			s.send(lease.TicketPrefix + t.request.Handle.String())
			return true
		}
	}
	return false
}

// waits reports whether a live member has a ticket; s.mu is held.
func (s *Server) waits(key string) bool {
	return slices.ContainsFunc(s.tickets[key], func(t ticketRow) bool { return s.alive(t.by.Member) })
}

// withdraw deletes the tickets of those that may wait; s.mu is held.
func (s *Server) withdraw(requests []lease.ReleaseRequest) {
	for _, r := range lease.MayWait(requests) {
		s.tickets[r.Key] = slices.DeleteFunc(s.tickets[r.Key], func(t ticketRow) bool { return t.request.Handle == r.Handle })
	}
}
