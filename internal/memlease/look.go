package memlease

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// List reads what is held, sorted by key.
func (e *Engine) List(ctx context.Context) (listed []lease.Listed, err error) {
	err = e.call(ctx, "List", func(s *Server) {
		now := s.clock.Now()
		for key, l := range s.leases {
			if s.held(l, now) {
				listed = append(listed, s.listed(key, l, now))
			}
		}
	})
	slices.SortFunc(listed, func(a, b lease.Listed) int { return cmp.Compare(a.Key, b.Key) })
	return listed, err
}

// Look reads one lease.
func (e *Engine) Look(ctx context.Context, key string) (x lease.Listed, held bool, err error) {
	err = e.call(ctx, "Look", func(s *Server) {
		now := s.clock.Now()
		l := s.leases[key]
		if held = l != nil && s.held(l, now); held {
			x = s.listed(key, l, now)
			x.Data = bytes.Clone(l.data)
		}
	})
	return x, held, err
}

// held tells whether somebody alive has a lease; s.mu is held.
func (s *Server) held(l *leaseRow, now time.Time) bool {
	return l.handle != (lease.Handle{}) && !l.ended(now) && (l.member == (member.ID{}) || s.alive(l.member))
}

// listed is a lease that is held, without its data; s.mu is held.
func (s *Server) listed(key string, l *leaseRow, now time.Time) lease.Listed {
	x := lease.Listed{
		Key: key, Token: l.token, Handle: l.handle, Age: now.Sub(l.changed),
		Holder: lease.Holder{Member: l.member, Label: l.label, Token: l.token, Remaining: s.remaining(l)},
	}
	if m := s.members[l.member]; m != nil {
		x.MemberLabel = m.label
	}
	for _, until := range s.waiters[key] {
		if until.After(now) {
			x.Waiters++
		}
	}
	return x
}

// Sweep tidies away what nobody has used for so long.
func (e *Engine) Sweep(ctx context.Context, unused time.Duration) (removed int64, err error) {
	err = e.call(ctx, "Sweep", func(s *Server) {
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
			if l.changed.Before(now.Add(-unused)) && (l.handle == lease.Handle{} || l.ended(now) || gone) {
				s.endAt(key, l, 0)
				delete(s.leases, key)
				removed++
			}
		}
	})
	return removed, err
}
