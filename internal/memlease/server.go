package memlease

import (
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// Server is the rows that processes have in common. It is safe for concurrent use.
type Server struct {
	clock clock.Clock

	mu      sync.Mutex
	members map[member.ID]*memberRow
	leases  map[string]*leaseRow
	waiters map[string]map[member.ID]time.Time // until when the process counts as waiting
	ears    map[*ear]struct{}
}

type memberRow struct {
	label   string
	beat    int64
	expires time.Time
	end     clock.Timer // wakes who waits for what it held
}

// leaseRow is kept when it is free: the token goes on from there.
type leaseRow struct {
	token   int64
	handle  lease.Handle // zero: nobody's
	member  member.ID    // zero: nobody keeps it alive
	until   time.Time    // its end, whatever the member does; zero: none
	changed time.Time
	label   string
	data    []byte
	end     clock.Timer // wakes who waits for it
}

// NewServer makes an empty Server.
func NewServer(c clock.Clock) *Server {
	return &Server{
		clock: c, members: make(map[member.ID]*memberRow), leases: make(map[string]*leaseRow),
		waiters: make(map[string]map[member.ID]time.Time), ears: make(map[*ear]struct{}),
	}
}

// alive tells whether a member's row is there and has not expired; s.mu is held.
func (s *Server) alive(id member.ID) bool {
	m := s.members[id]
	return m != nil && m.expires.After(s.clock.Now())
}

// serves tells whether a lease may be granted on behalf of a process; s.mu is held.
func (s *Server) serves(by lease.By) bool {
	return s.alive(by.Member) && s.members[by.Member].beat <= by.Beat+1
}

// ended tells whether a lease's own time is up.
func (l *leaseRow) ended(now time.Time) bool { return !l.until.IsZero() && !l.until.After(now) }

// grant makes a lease another handle's; s.mu is held.
func (s *Server) grant(by lease.By, a lease.Ask) (token int64) {
	now := s.clock.Now()
	l := s.leases[a.Key]
	if l == nil {
		l = &leaseRow{}
		s.leases[a.Key] = l
	}
	l.token = max(l.token+1, now.UnixMicro())
	l.handle, l.changed, l.label, l.data = a.Handle, now, a.Label, append([]byte(nil), a.Data...)
	l.member = by.Member
	if a.Detached {
		l.member = member.ID{}
	}
	s.endAt(a.Key, l, a.Hold)
	return l.token
}

// endAt gives a lease an end of its own, d from now; 0 is none. s.mu is held.
func (s *Server) endAt(key string, l *leaseRow, d time.Duration) {
	if l.end != nil {
		l.end.Stop()
	}
	l.until, l.end = time.Time{}, nil
	if d > 0 {
		l.until = s.clock.Now().Add(d)
		l.end = s.clock.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.notify(key)
		})
	}
}

// free makes a lease nobody's, and wakes who waits for it; s.mu is held.
func (s *Server) free(key string, l *leaseRow) {
	s.endAt(key, l, 0)
	l.handle, l.member, l.label, l.data, l.changed = lease.Handle{}, member.ID{}, "", nil, s.clock.Now()
	s.notify(key)
}

// expireAfter moves a member's end to ttl from now, and never back; s.mu is held.
func (s *Server) expireAfter(id member.ID, ttl time.Duration) {
	m, now := s.members[id], s.clock.Now()
	if end := now.Add(ttl); end.After(m.expires) {
		m.expires = end
	}
	if m.end != nil {
		m.end.Stop()
	}
	m.end = s.clock.AfterFunc(m.expires.Sub(now), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.notifyOf(id)
	})
}

// drop deletes a member's row: all that it held is free. s.mu is held.
func (s *Server) drop(id member.ID) {
	if m := s.members[id]; m != nil {
		m.end.Stop()
		delete(s.members, id)
	}
}

// remaining is until when a lease lasts without a heartbeat; 0 where that can't be told. s.mu is held.
func (s *Server) remaining(l *leaseRow) time.Duration {
	until := l.until
	if m := s.members[l.member]; m != nil && (until.IsZero() || m.expires.Before(until)) {
		until = m.expires
	}
	if until.IsZero() {
		return 0
	}
	return max(0, until.Sub(s.clock.Now()))
}

// Stands tells what a guard would: whether the lease is still that handle's, with that token.
func (s *Server) Stands(key string, token int64, handle lease.Handle) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[key]
	return l != nil && l.token == token && l.handle == handle && handle != lease.Handle{}
}
