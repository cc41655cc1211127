package memlease

import (
	"context"
	"time"

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
	now := s.clock.Now()
	l := s.leases[a.Key]
	held := l != nil && l.handle != lease.Handle{} && !l.ended(now)
	if serves && (!held || l.handle == a.Instead || l.member != member.ID{} && l.member == a.Gone) {
		return lease.Answer{Token: s.grant(by, a)}
	}
	answer := lease.Answer{MemberGone: !serves, Held: held}
	if held {
		answer.Holder = lease.Holder{
			Member: l.member, Label: l.label, Token: l.token, Remaining: s.remaining(l),
			Dead: l.member != member.ID{} && !s.alive(l.member),
		}
	}
	return answer
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
			returned[i] = s.giveBack(b)
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
	s.free(b.Key, l)
	return lease.Returned{Freed: true, Stood: true}
}

// ExpireIn ends a lease d from now.
func (e *Engine) ExpireIn(ctx context.Context, b lease.Back, d time.Duration) (ours bool, err error) {
	err = e.call(ctx, "ExpireIn", func(s *Server) {
		l := s.leases[b.Key]
		ours = l != nil && l.handle == b.Handle && l.token == b.Token && !l.ended(s.clock.Now())
		if ours {
			s.endAt(b.Key, l, max(d, time.Microsecond)) // as a database would: its clock counts these
		}
	})
	return ours, err
}
