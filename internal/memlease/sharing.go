package memlease

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// acquireShared lets one reader in; s.mu is held.
func (s *Server) acquireShared(by lease.By, a lease.AcquireRequest) lease.AcquireResult {
	now, l := s.clock.Now(), s.leases[a.Key]
	held := l.held(now)
	serves := s.serves(by)
	back := s.waiters[a.Key][member.ID{}].After(now) // a writer has asked for it
	if !serves || back || held && (l.member == member.ID{} || l.member != a.DeadMember) {
		answer := lease.AcquireResult{MemberGone: !serves, Held: held}
		if held {
			answer.Holder = s.holder(&l.grantRow)
		}
		return answer
	}
	l = s.lease(a.Key)
	if !l.shared || l.handle != (lease.Handle{}) {
		s.free(a.Key, &l.grantRow)
		if !l.shared { // else the writer that waited for readers is dead, and they may be there still
			l.shared, l.token = true, s.unused(a.Key, l.token+1)
		}
	}
	g := &grantRow{}
	l.readers[a.Handle] = g
	s.fill(by, a, g, l.token)
	return lease.AcquireResult{Token: g.token, Handle: g.handle}
}

// releaseShared ends one reader; s.mu is held.
func (s *Server) releaseShared(b lease.ReleaseRequest) lease.ReleaseResult {
	l := s.leases[b.Key]
	if l == nil || l.readers[b.Handle] == nil {
		return lease.ReleaseResult{}
	}
	s.free(b.Key, l.readers[b.Handle])
	delete(l.readers, b.Handle)
	return lease.ReleaseResult{Freed: true, Held: true}
}

// Readers returns the shared holders of a key.
func (d *Driver) Readers(ctx context.Context, key string) (readers []lease.Holder, err error) {
	err = d.call(ctx, "Readers", func(s *Server) {
		if l := s.leases[key]; l != nil {
			for _, g := range l.readers {
				h := s.holder(g)
				h.Dead = h.Dead || g.ended(s.clock.Now())
				readers = append(readers, h)
			}
		}
	})
	return readers, err
}

// takePermits grants what one ask wants; s.mu is held.
func (s *Server) takePermits(by lease.By, a lease.AcquireRequest) lease.AcquireResult {
	now, sema := s.clock.Now(), s.semas[a.Key]
	if sema == nil {
		sema = &semaphoreRow{}
	}
	answer := lease.AcquireResult{MemberGone: !s.serves(by), Stored: sema.limit}
	var free []*grantRow
	past := 0 // those that are held from when there were more
	token := int64(0)
	for i, g := range sema.permits {
		switch {
		case g.handle != lease.Handle{} && !g.ended(now):
			answer.Held, answer.Holder = true, s.holder(g)
			if answer.Holder.Dead && !slices.Contains(answer.Dead, g.member) {
				answer.Dead = append(answer.Dead, g.member)
			}
			if i >= sema.limit {
				past++
			}
		case i < sema.limit:
			free = append(free, g)
			token = max(token, g.token+1)
		}
	}
	answer.Holder.Dead = false // see Dead
	if answer.MemberGone || sema.limit != a.Limit || len(free)-past < a.Permits {
		return answer
	}
	token = s.unused(a.Key, token)
	for _, g := range free[:a.Permits] {
		s.fill(by, a, g, token)
	}
	return lease.AcquireResult{Token: token, Handle: free[0].handle}
}

// releasePermits frees those of one handle; s.mu is held.
func (s *Server) releasePermits(b lease.ReleaseRequest) (returned lease.ReleaseResult) {
	for _, g := range s.rowsOf(lease.ReleaseRequest{Key: b.Key, Mode: dblock.ModePermit}) {
		if g.handle == b.Handle && b.Handle != (lease.Handle{}) {
			s.free(b.Key, g)
			returned = lease.ReleaseResult{Freed: true, Held: true}
		}
	}
	return returned
}

// SetPermits gives it a number.
func (d *Driver) SetPermits(ctx context.Context, key string, limit int) error {
	return d.call(ctx, "SetPermits", func(s *Server) {
		s.setPermits(key, limit)
		s.notify(key)
	})
}

// setPermits makes what is missing; s.mu is held.
func (s *Server) setPermits(key string, limit int) {
	sema := s.semas[key]
	if sema == nil {
		sema = &semaphoreRow{}
		s.semas[key] = sema
	}
	sema.limit = limit
	for len(sema.permits) < limit {
		sema.permits = append(sema.permits, &grantRow{})
	}
}

// Reap ends the holds of members that are gone for good, and those whose time is up.
func (d *Driver) Reap(ctx context.Context, mode dblock.Mode, key string, gone []member.ID) error {
	return d.call(ctx, "Reap", func(s *Server) {
		over := func(g *grantRow) bool {
			return g.ended(s.clock.Now()) || g.member != member.ID{} && slices.Contains(gone, g.member)
		}
		for _, g := range s.rowsOf(lease.ReleaseRequest{Key: key, Mode: dblock.ModePermit}) {
			if mode == dblock.ModePermit && over(g) {
				s.free(key, g)
			}
		}
		if l := s.leases[key]; l != nil && mode == dblock.ModeShared {
			for handle, g := range l.readers {
				if over(g) {
					s.releaseShared(lease.ReleaseRequest{Key: key, Handle: handle})
				}
			}
		}
	})
}
