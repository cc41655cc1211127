package memlease

import (
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// Server is the rows that processes have in common. It is safe for concurrent use.
type Server struct {
	clock clock.Clock

	mu        sync.Mutex
	members   map[member.ID]*memberRow
	leases    map[string]*leaseRow
	semas     map[string]*semaphoreRow
	tickets   map[string][]ticketRow             // in their order
	ticket    int64                              // the last one
	waiters   map[string]map[member.ID]time.Time // until when the process counts as waiting
	listeners map[*listener]struct{}
}

type memberRow struct {
	label     string
	heartbeat int64
	expires   time.Time
	end       clock.Timer // wakes the waiters for its leases
}

// leaseRow is kept when it is free: the token goes on from there.
type leaseRow struct {
	grantRow
	shared  bool // readers may be there
	readers map[lease.Handle]*grantRow
}

// semaphoreRow is a number of permits; those past it are not given out any more.
type semaphoreRow struct {
	limit   int
	permits []*grantRow
}

// grantRow is one acquisition.
type grantRow struct {
	token   int64
	handle  lease.Handle // zero: it is free
	member  member.ID    // zero: it lasts until its own end
	until   time.Time    // its end, whatever the member does; zero: none
	changed time.Time
	label   string
	data    []byte
	end     clock.Timer // wakes its waiters

	permits int // how many permits the acquisition has
}

// NewServer makes an empty Server.
func NewServer(c clock.Clock) *Server {
	return &Server{
		clock: c, members: make(map[member.ID]*memberRow), leases: make(map[string]*leaseRow), semas: make(map[string]*semaphoreRow), tickets: make(map[string][]ticketRow),
		waiters: make(map[string]map[member.ID]time.Time), listeners: make(map[*listener]struct{}),
	}
}

// alive reports whether a member's row is there and has not expired; s.mu is held.
func (s *Server) alive(id member.ID) bool {
	m := s.members[id]
	return m != nil && m.expires.After(s.clock.Now())
}

// serves reports whether a lease may be granted to a process; s.mu is held.
func (s *Server) serves(by lease.By) bool {
	return s.alive(by.Member) && s.members[by.Member].heartbeat <= by.Heartbeat+1
}

// ended reports whether an acquisition's own time is up.
func (g *grantRow) ended(now time.Time) bool { return !g.until.IsZero() && !g.until.After(now) }

// grant makes a lease another handle's; s.mu is held.
func (s *Server) grant(by lease.By, a lease.AcquireRequest) lease.AcquireResult {
	l := s.lease(a.Key)
	token := s.unused(a.Key, l.token+1)
	if l.shared = l.shared && (l.handle == lease.Handle{} || l.handle != a.Instead); l.shared {
		token = l.token // that of the readers that may be there
	}
	s.fill(by, a, &l.grantRow, token)
	return lease.AcquireResult{Token: l.token, Handle: l.handle}
}

// unused is a token of a key, no lower than one: a time that neither its lock nor its semaphore of
// the same name has; s.mu is held.
func (s *Server) unused(key string, atLeast int64) int64 {
	token := max(atLeast, s.clock.Now().UnixMicro())
	used := func(g *grantRow) bool { return g.token == token }
	for {
		l, sema := s.leases[key], s.semas[key]
		if (l == nil || l.token != token) && (sema == nil || !slices.ContainsFunc(sema.permits, used)) {
			return token
		}
		token++
	}
}

// lease is a key's row, which is made where it is missing; s.mu is held.
func (s *Server) lease(key string) *leaseRow {
	l := s.leases[key]
	if l == nil {
		l = &leaseRow{readers: make(map[lease.Handle]*grantRow)}
		s.leases[key] = l
	}
	return l
}

// fill makes something an ask's; s.mu is held.
func (s *Server) fill(by lease.By, a lease.AcquireRequest, g *grantRow, token int64) {
	g.token, g.handle, g.permits = token, a.Handle, a.Permits
	g.changed, g.label, g.data = s.clock.Now(), a.Label, append([]byte(nil), a.Data...)
	g.member = by.Member
	if a.Detached {
		g.member = member.ID{}
	}
	s.endAt(a.Key, g, a.Hold)
}

// endAt gives an acquisition an end of its own, d from now; 0 is none. s.mu is held.
func (s *Server) endAt(key string, g *grantRow, d time.Duration) {
	if g.end != nil {
		g.end.Stop()
	}
	g.until, g.end = time.Time{}, nil
	if d > 0 {
		g.until = s.clock.Now().Add(d)
		g.end = s.clock.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.notify(key)
		})
	}
}

// free makes a grant free, and wakes its waiters; s.mu is held.
func (s *Server) free(key string, g *grantRow) {
	s.endAt(key, g, 0)
	g.handle, g.member, g.label, g.data, g.changed, g.permits = lease.Handle{}, member.ID{}, "", nil, s.clock.Now(), 0
	s.notify(key)
}

// expireAfter moves a member's end to ttl from now; s.mu is held.
func (s *Server) expireAfter(id member.ID, ttl time.Duration) {
	m, now := s.members[id], s.clock.Now()
	m.expires = now.Add(ttl)
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

// remaining is how long a lease lasts without a heartbeat; 0 if that is unknown. s.mu is held.
func (s *Server) remaining(g *grantRow) time.Duration {
	until := g.until
	if m := s.members[g.member]; m != nil && (until.IsZero() || m.expires.Before(until)) {
		until = m.expires
	}
	if until.IsZero() {
		return 0
	}
	return max(0, until.Sub(s.clock.Now()))
}

// IsHeld reports what a guard would: all of an acquisition still belongs to that handle, with that
// token.
func (s *Server) IsHeld(b lease.ReleaseRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stillHeld(b)
}

// stillHeld is IsHeld; s.mu is held.
func (s *Server) stillHeld(b lease.ReleaseRequest) bool {
	stand, want := 0, 1
	for _, g := range s.rowsOf(b) {
		if g.token == b.Token && g.handle == b.Handle && b.Handle != (lease.Handle{}) {
			stand++
			want = max(want, g.permits)
		}
	}
	return stand == want
}

// rowsOf are those that may be an acquisition's; s.mu is held.
func (s *Server) rowsOf(b lease.ReleaseRequest) (rows []*grantRow) {
	l, sema := s.leases[b.Key], s.semas[b.Key]
	switch {
	case b.Mode == dblock.ModePermit && sema != nil:
		return sema.permits
	case b.Mode == dblock.ModeExclusive && l != nil:
		return []*grantRow{&l.grantRow}
	case b.Mode == dblock.ModeShared && l != nil && l.readers[b.Handle] != nil:
		return []*grantRow{l.readers[b.Handle]}
	}
	return nil
}
