package memlease

import (
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// Acquire grants what is free of a batch.
func (e *Engine) Acquire(ctx context.Context, by lease.By, asks []lease.Ask) ([]lease.Answer, error) {
	name := "HandOver"
	for _, a := range asks {
		if a.Instead == (lease.Handle{}) {
			name = "Acquire"
		}
	}
	answers := make([]lease.Answer, len(asks))
	err := e.call(ctx, name, func(s *Server) {
		serves := s.serves(by)
		for i, a := range asks {
			answers[i] = s.answer(by, a, serves)
		}
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// answer grants one lease, or says why not; s.mu is held.
func (s *Server) answer(by lease.By, a lease.Ask, serves bool) lease.Answer {
	refused, free := s.refuse(a, serves)
	if free {
		return s.grant(by, a)
	}
	return refused
}

// refuse says why a lease can't be granted, if it can't; s.mu is held.
func (s *Server) refuse(a lease.Ask, serves bool) (answer lease.Answer, granted bool) {
	now := s.clock.Now()
	l := s.leases[a.Key]
	held := l.held(now)
	instead := held && l.handle == a.Instead
	free := !held || instead || l.member != member.ID{} && l.member == a.Gone
	shared := l != nil && l.shared && !instead
	answer = lease.Answer{MemberGone: !serves, Held: held, Shared: free && shared}
	if held {
		answer.Holder = s.holder(&l.grantRow)
	}
	return answer, serves && free && (!shared || a.Over) && !(a.InTurn && s.waits(a.Key))
}

// held tells whether somebody has a lease for itself.
func (l *leaseRow) held(now time.Time) bool {
	return l != nil && l.handle != lease.Handle{} && !l.ended(now)
}

// holder is who has something; s.mu is held.
func (s *Server) holder(g *grantRow) lease.Holder {
	return lease.Holder{
		Member: g.member, Label: g.label, Token: g.token, Remaining: s.remaining(g),
		Dead: g.member != member.ID{} && !s.alive(g.member),
	}
}

// Evict ends a member that has expired.
func (e *Engine) Evict(ctx context.Context, id member.ID) (gone bool, err error) {
	err = e.call(ctx, "Evict", func(s *Server) {
		if gone = !s.alive(id); gone {
			s.drop(id)
		}
	})
	return gone, err
}

// Release gives a batch back.
func (e *Engine) Release(ctx context.Context, backs []lease.Back) ([]lease.Returned, error) {
	returned := make([]lease.Returned, len(backs))
	err := e.call(ctx, "Release", func(s *Server) {
		for i, b := range backs {
			switch b.Mode {
			case dblock.ModeExclusive:
				returned[i] = s.giveBack(b)
			case dblock.ModeShared:
				returned[i] = s.leaveShared(b)
			case dblock.ModePermit:
				returned[i] = s.givePermitsBack(b)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return returned, nil
}

// giveBack frees one lease where it is that handle's; s.mu is held.
func (s *Server) giveBack(b lease.Back) lease.Returned {
	l := s.leases[b.Key]
	if l == nil || l.handle != b.Handle || b.Handle == (lease.Handle{}) {
		return lease.Returned{}
	}
	if b.Token != 0 && b.Token != l.token {
		return lease.Returned{Stood: true}
	}
	s.free(b.Key, &l.grantRow)
	return lease.Returned{Freed: true, Stood: true}
}

// ExpireIn ends all leases of one acquisition d from now, or none.
func (e *Engine) ExpireIn(ctx context.Context, backs []lease.Back, d time.Duration) (ours bool, err error) {
	err = e.call(ctx, "ExpireIn", func(s *Server) {
		if ours = !slices.ContainsFunc(backs, func(b lease.Back) bool { return !s.holds(b) }); !ours {
			return
		}
		for _, b := range backs {
			for _, g := range s.rowsOf(b) {
				if g.handle == b.Handle {
					s.endAt(b.Key, g, max(d, time.Microsecond)) // a database counts in these
				}
			}
		}
	})
	return ours, err
}

// Holding tells which acquisitions are still ours.
func (e *Engine) Holding(ctx context.Context, backs []lease.Back) (ours []bool, err error) {
	err = e.call(ctx, "Holding", func(s *Server) {
		for _, b := range backs {
			ours = append(ours, s.holds(b))
		}
	})
	return ours, err
}

// holds tells whether all of an acquisition is there, and has not ended by itself; s.mu is held.
func (s *Server) holds(b lease.Back) bool {
	ended := func(g *grantRow) bool { return g.handle == b.Handle && g.ended(s.clock.Now()) }
	return s.stands(b) && !slices.ContainsFunc(s.rowsOf(b), ended)
}
