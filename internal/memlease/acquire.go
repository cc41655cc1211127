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
func (d *Driver) Acquire(ctx context.Context, b lease.AcquireBatch) ([]lease.AcquireResult, error) {
	results := make([]lease.AcquireResult, len(b.Requests))
	err := d.call(ctx, acquireName(b), func(s *Server) {
		if b.Kind == lease.KindSet {
			s.acquireSet(b, results)
			return
		}
		for i, r := range b.Requests {
			results[i] = s.acquire(b.Kind, b.By, r)
		}
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// acquireName names the call for a batch: see Around.
func acquireName(b lease.AcquireBatch) string {
	switch b.Kind {
	case lease.KindShared:
		return "AcquireShared"
	case lease.KindPermits:
		return "AcquirePermits"
	case lease.KindSet:
		return "AcquireAll"
	case lease.KindFair:
		return "Enqueue"
	}
	for _, r := range b.Requests {
		if r.Instead == (lease.Handle{}) {
			return "Acquire"
		}
	}
	return "HandOver"
}

// acquire grants one lease, or says why not; s.mu is held.
func (s *Server) acquire(kind lease.Kind, by lease.By, r lease.AcquireRequest) lease.AcquireResult {
	switch kind {
	case lease.KindShared:
		return s.acquireShared(by, r)
	case lease.KindPermits:
		return s.takePermits(by, r)
	case lease.KindFair:
		return lease.AcquireResult{Ticket: s.enqueue(by, r)}
	}
	refused, free := s.refuse(r, s.serves(by))
	if free {
		return s.grant(by, r)
	}
	return refused
}

// acquireSet grants all requests, or none; s.mu is held.
func (s *Server) acquireSet(b lease.AcquireBatch, results []lease.AcquireResult) {
	all, serves := true, s.serves(b.By)
	for i, r := range b.Requests {
		var free bool
		results[i], free = s.refuse(r, serves)
		all = all && free
	}
	for i := 0; all && i < len(b.Requests); i++ {
		results[i] = s.grant(b.By, b.Requests[i])
	}
}

// Make makes rows that are missing.
func (d *Driver) Make(ctx context.Context, keys []string, permits int) error {
	name := "MakeFree"
	if permits > 0 {
		name = "InsertSemaphore"
	}
	return d.call(ctx, name, func(s *Server) {
		for _, key := range keys {
			switch {
			case permits == 0:
				s.lease(key)
			case s.semas[key] == nil:
				s.setPermits(key, permits)
			}
		}
	})
}

// refuse says why a lease can't be granted, if it can't; s.mu is held.
func (s *Server) refuse(a lease.AcquireRequest, serves bool) (answer lease.AcquireResult, granted bool) {
	now := s.clock.Now()
	l := s.leases[a.Key]
	held := l.held(now)
	instead := held && l.handle == a.Instead
	free := !held || instead || l.member != member.ID{} && l.member == a.DeadMember
	shared := l != nil && l.shared && !instead
	answer = lease.AcquireResult{MemberGone: !serves, Held: held, Shared: free && shared}
	if held {
		answer.Holder = s.holder(&l.grantRow)
	}
	return answer, serves && free && (!shared || a.DespiteReaders) && !(a.NoTickets && s.waits(a.Key))
}

// held reports whether a lease has an exclusive holder.
func (l *leaseRow) held(now time.Time) bool {
	return l != nil && l.handle != lease.Handle{} && !l.ended(now)
}

// holder is the holder of a grant; s.mu is held.
func (s *Server) holder(g *grantRow) lease.Holder {
	return lease.Holder{
		Member: g.member, Label: g.label, Token: g.token, Remaining: s.remaining(g),
		Dead: g.member != member.ID{} && !s.alive(g.member),
	}
}

// Evict ends a member that has expired.
func (d *Driver) Evict(ctx context.Context, id member.ID) (gone bool, err error) {
	err = d.call(ctx, "Evict", func(s *Server) {
		if gone = !s.alive(id); gone {
			s.drop(id)
		}
	})
	return gone, err
}

// Release gives a batch back.
func (d *Driver) Release(ctx context.Context, b lease.ReleaseBatch) ([]lease.ReleaseResult, error) {
	results := make([]lease.ReleaseResult, len(b.Requests))
	name := "Release"
	if b.Kind == lease.KindFair {
		name = "HandOff"
	}
	err := d.call(ctx, name, func(s *Server) {
		if b.Kind == lease.KindFair {
			s.withdraw(b.Requests)
		}
		for i, r := range b.Requests {
			switch r.Mode {
			case dblock.ModeExclusive:
				results[i] = s.release(r)
			case dblock.ModeShared:
				results[i] = s.releaseShared(r)
			case dblock.ModePermit:
				results[i] = s.releasePermits(r)
			}
			if b.Kind == lease.KindFair && results[i].Freed && !s.leases[r.Key].shared {
				s.next(r.Key)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// release releases one lease if it belongs to that handle; s.mu is held.
func (s *Server) release(b lease.ReleaseRequest) lease.ReleaseResult {
	l := s.leases[b.Key]
	if l == nil || l.handle != b.Handle || b.Handle == (lease.Handle{}) {
		return lease.ReleaseResult{}
	}
	if b.Token != 0 && b.Token != l.token {
		return lease.ReleaseResult{Held: true}
	}
	s.free(b.Key, &l.grantRow)
	return lease.ReleaseResult{Freed: true, Held: true}
}

// ExpireIn ends all leases of one acquisition so long from now, or none.
func (d *Driver) ExpireIn(ctx context.Context, held []lease.ReleaseRequest, in time.Duration) (ours bool, err error) {
	err = d.call(ctx, "ExpireIn", func(s *Server) {
		if ours = !slices.ContainsFunc(held, func(b lease.ReleaseRequest) bool { return !s.holds(b) }); !ours {
			return
		}
		for _, b := range held {
			for _, g := range s.rowsOf(b) {
				if g.handle == b.Handle {
					s.endAt(b.Key, g, max(in, time.Microsecond)) // a database counts in these
				}
			}
		}
	})
	return ours, err
}

// Holding reports which acquisitions still hold their leases.
func (d *Driver) Holding(ctx context.Context, backs []lease.ReleaseRequest) (ours []bool, err error) {
	err = d.call(ctx, "Holding", func(s *Server) {
		for _, b := range backs {
			ours = append(ours, s.holds(b))
		}
	})
	return ours, err
}

// holds reports whether all of an acquisition is there, and its time is not up; s.mu is held.
func (s *Server) holds(b lease.ReleaseRequest) bool {
	ended := func(g *grantRow) bool { return g.handle == b.Handle && g.ended(s.clock.Now()) }
	return s.stillHeld(b) && !slices.ContainsFunc(s.rowsOf(b), ended)
}
