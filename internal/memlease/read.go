package memlease

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// List reads what is held, sorted by key: of all keys, or of one.
func (d *Driver) List(ctx context.Context, of string) (listed []lease.HeldLease, err error) {
	err = d.call(ctx, "List", func(s *Server) {
		for key, l := range s.leases {
			if !l.shared { // else it waits for readers
				listed = s.list(listed, key, dblock.ModeExclusive, &l.grantRow)
			}
			for _, g := range l.readers {
				listed = s.list(listed, key, dblock.ModeShared, g)
			}
		}
		for key, sema := range s.semas {
			of := make(map[lease.Handle]bool)
			for _, g := range sema.permits {
				if of[g.handle] {
					continue
				}
				of[g.handle] = true
				before := len(listed)
				if listed = s.list(listed, key, dblock.ModePermit, g); len(listed) > before {
					listed[before].Permits, listed[before].Limit = g.permits, sema.limit
				}
			}
		}
	})
	listed = slices.DeleteFunc(listed, func(l lease.HeldLease) bool { return of != "" && l.Key != of })
	slices.SortFunc(listed, lease.ByKey)
	return listed, err
}

// HeldBy reads the leases of a member.
func (d *Driver) HeldBy(ctx context.Context, id member.ID) (held []lease.ReleaseRequest, err error) {
	err = d.call(ctx, "HeldBy", func(s *Server) {
		add := func(key string, mode dblock.Mode, g *grantRow) {
			if g.member == id && g.handle != (lease.Handle{}) {
				held = append(held, lease.ReleaseRequest{Key: key, Handle: g.handle, Mode: mode})
			}
		}
		for key, l := range s.leases {
			add(key, dblock.ModeExclusive, &l.grantRow)
			for _, g := range l.readers {
				add(key, dblock.ModeShared, g)
			}
		}
		for key, sema := range s.semas {
			for _, g := range sema.permits {
				add(key, dblock.ModePermit, g)
			}
		}
		for key, tickets := range s.tickets {
			for _, t := range tickets {
				if t.by.Member == id {
					held = append(held, lease.ReleaseRequest{Key: key, Handle: t.request.Handle})
				}
			}
		}
	})
	return held, err
}

// Get reads one lease: the exclusive holder, or else one that holds the key shared, or permits.
func (d *Driver) Get(ctx context.Context, key string) (x lease.HeldLease, held bool, err error) {
	err = d.call(ctx, "Get", func(s *Server) {
		x.Key = key
		if l := s.leases[key]; l != nil {
			x.Token = l.token
		}
		look := func(mode dblock.Mode, g *grantRow, limit int) {
			if held {
				return
			}
			for _, x = range s.list(nil, key, mode, g) {
				held, x.Permits, x.Limit, x.Data = true, g.permits, limit, bytes.Clone(g.data)
			}
		}
		if l := s.leases[key]; l != nil {
			if !l.shared {
				look(dblock.ModeExclusive, &l.grantRow, 0)
			}
			for _, g := range l.readers {
				look(dblock.ModeShared, g, 0)
			}
		}
		if sema := s.semas[key]; sema != nil {
			for _, g := range sema.permits {
				look(dblock.ModePermit, g, sema.limit)
			}
		}
	})
	return x, held, err
}

// list adds the grants of live members; s.mu is held.
func (s *Server) list(listed []lease.HeldLease, key string, mode dblock.Mode, g *grantRow) []lease.HeldLease {
	now := s.clock.Now()
	if g.handle == (lease.Handle{}) || g.ended(now) || g.member != (member.ID{}) && !s.alive(g.member) {
		return listed
	}
	x := lease.HeldLease{Key: key, Mode: mode, Token: g.token, Handle: g.handle, Age: now.Sub(g.changed), Holder: s.holder(g)}
	if m := s.members[g.member]; m != nil {
		x.MemberLabel = m.label
	}
	for id, until := range s.waiters[key] {
		if until.After(now) && id != (member.ID{}) {
			x.Waiters++
		}
	}
	queued := make(map[member.ID]bool)
	for _, t := range s.tickets[key] {
		queued[t.by.Member] = s.alive(t.by.Member)
	}
	for _, alive := range queued {
		if alive {
			x.Waiters++
		}
	}
	return append(listed, x)
}

// Sweep removes rows that were not used for so long.
func (d *Driver) Sweep(ctx context.Context, unused time.Duration) (removed int64, err error) {
	err = d.call(ctx, "Sweep", func(s *Server) {
		now := s.clock.Now()
		for id, m := range s.members {
			if m.expires.Before(now.Add(-unused)) {
				s.drop(id)
				removed++
			}
		}
		for key, by := range s.waiters {
			for id, until := range by {
				if until.Before(now) {
					delete(by, id)
				}
			}
			if len(by) == 0 {
				delete(s.waiters, key)
			}
		}
		for key, l := range s.leases {
			gone := l.member != member.ID{} && s.members[l.member] == nil
			for handle, g := range l.readers {
				if g.changed.Before(now.Add(-unused)) && (g.ended(now) || g.member != member.ID{} && s.members[g.member] == nil) {
					s.endAt(key, g, 0)
					delete(l.readers, handle)
					removed++
				}
			}
			if len(l.readers) > 0 {
				continue
			}
			if l.changed.Before(now.Add(-unused)) && (l.handle == lease.Handle{} || l.ended(now) || gone) {
				s.endAt(key, &l.grantRow, 0)
				delete(s.leases, key)
				removed++
			}
		}
	})
	return removed, err
}
