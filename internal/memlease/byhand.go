package memlease

import (
	"cmp"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// What follows is what a test of a database would do to its rows by hand.

// long is a time before all that a test does.
var long = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)

// Forget deletes a member's row, as whoever found it dead.
func (s *Server) Forget(id member.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(id)
	s.notifyOf(id)
}

// ForgetMembers deletes all members' rows.
func (s *Server) ForgetMembers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.members {
		s.drop(id)
		s.notifyOf(id)
	}
}

// ExpireMembers lets all members expire, long ago.
func (s *Server) ExpireMembers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, m := range s.members {
		m.expires = long
		s.notifyOf(id)
	}
}

// Free gives back what a fence names, and no process is told.
func (s *Server) Free(f dblock.Fence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch b := (lease.ReleaseRequest{Key: f.Key, Handle: f.Handle}); f.Mode {
	case dblock.ModeShared:
		s.leaveShared(b)
	case dblock.ModePermit:
		s.givePermitsBack(b)
	default:
		s.giveBack(b)
	}
}

// AgeLeases has all leases look as if nobody had touched them for long.
func (s *Server) AgeLeases() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leases {
		l.changed = long
		for _, g := range l.readers {
			g.changed = long
		}
	}
}

// Tickets counts the calls that wait.
func (s *Server) Tickets() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.tickets {
		n += len(of)
	}
	return n
}

// Rows counts what there is.
func (s *Server) Rows() (members, leases, waiters int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, by := range s.waiters {
		waiters += len(by)
	}
	return len(s.members), len(s.leases), waiters
}

// Keeps tells whether a lease is a handle's and lives by a member's heartbeats.
func (s *Server) Keeps(id member.ID, b lease.ReleaseRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.rowsOf(b), func(g *grantRow) bool { return g.handle == b.Handle && g.member == id })
}

// Remember returns what brings back the rows of an acquisition, and its tickets, as they are now: as a server does that has
// forgotten its release. Rows that others have had since, or whose time is up, stay as they are.
func (s *Server) Remember(b lease.ReleaseRequest) (bringBack func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := make(map[*grantRow]grantRow)
	for _, g := range s.rowsOf(b) {
		if g.handle == b.Handle {
			was[g] = *g
		}
	}
	tickets := slices.DeleteFunc(slices.Clone(s.tickets[b.Key]), func(t ticketRow) bool { return t.ask.Handle != b.Handle })
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tickets[b.Key] = append(tickets, s.tickets[b.Key]...)
		slices.SortFunc(s.tickets[b.Key], func(a, b ticketRow) int { return cmp.Compare(a.n, b.n) })
		for g, old := range was {
			l := s.leases[b.Key]
			reads := b.Mode == dblock.ModeShared
			if g.handle != (lease.Handle{}) || g.token != old.token || old.ended(s.clock.Now()) || reads && (l == nil || !l.shared || l.token != old.token) {
				continue
			}
			old.end = nil
			*g = old
			if !old.until.IsZero() {
				s.endAt(b.Key, g, old.until.Sub(s.clock.Now()))
			}
			if reads {
				l.readers[b.Handle] = g
			}
		}
	}
}
