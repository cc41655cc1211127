package memlease

import (
	"cmp"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// Admin changes the rows of a Server as a test of a database does by SQL.
type Admin struct{ s *Server }

// Admin returns the Admin of a Server.
func (s *Server) Admin() Admin { return Admin{s} }

// long is a time before all that a test does.
var long = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)

// DeleteMember deletes a member's row, as a process does that found it dead.
func (a Admin) DeleteMember(id member.ID) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.s.drop(id)
	a.s.notifyOf(id)
}

// DeleteMembers deletes all members' rows.
func (a Admin) DeleteMembers() {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	for id := range a.s.members {
		a.s.drop(id)
		a.s.notifyOf(id)
	}
}

// ExpireMembers makes all members expire, long ago.
func (a Admin) ExpireMembers() {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	for id, m := range a.s.members {
		m.expires = long
		a.s.notifyOf(id)
	}
}

// Free releases what a fence names. No process is notified.
func (a Admin) Free(f dblock.Fence) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	switch b := (lease.ReleaseRequest{Key: f.Key, Handle: f.Handle}); f.Mode {
	case dblock.ModeShared:
		a.s.releaseShared(b)
	case dblock.ModePermit:
		a.s.releasePermits(b)
	default:
		a.s.release(b)
	}
}

// AgeLeases makes all leases look unused for a long time.
func (a Admin) AgeLeases() {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	for _, l := range a.s.leases {
		l.changed = long
		for _, g := range l.readers {
			g.changed = long
		}
	}
}

// Tickets counts the calls that wait.
func (a Admin) Tickets() (n int) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	for _, of := range a.s.tickets {
		n += len(of)
	}
	return n
}

// Rows counts the rows.
func (a Admin) Rows() (members, leases, waiters int) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	for _, by := range a.s.waiters {
		waiters += len(by)
	}
	return len(a.s.members), len(a.s.leases), waiters
}

// Keeps reports whether a lease belongs to a handle and lasts as long as a member.
func (a Admin) Keeps(id member.ID, b lease.ReleaseRequest) bool {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	return slices.ContainsFunc(a.s.rowsOf(b), func(g *grantRow) bool { return g.handle == b.Handle && g.member == id })
}

// Remember returns a function that restores the rows of an acquisition, and its tickets, as they
// are now: as a server does that has lost the release. Rows that others have had since, or whose
// time is up, stay as they are.
func (a Admin) Remember(b lease.ReleaseRequest) (bringBack func()) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	was := make(map[*grantRow]grantRow)
	for _, g := range a.s.rowsOf(b) {
		if g.handle == b.Handle {
			was[g] = *g
		}
	}
	tickets := slices.DeleteFunc(slices.Clone(a.s.tickets[b.Key]), func(t ticketRow) bool { return t.request.Handle != b.Handle })
	return func() {
		a.s.mu.Lock()
		defer a.s.mu.Unlock()
		a.s.tickets[b.Key] = append(tickets, a.s.tickets[b.Key]...)
		slices.SortFunc(a.s.tickets[b.Key], func(x, y ticketRow) int { return cmp.Compare(x.n, y.n) })
		for g, old := range was {
			l := a.s.leases[b.Key]
			reads := b.Mode == dblock.ModeShared
			if g.handle != (lease.Handle{}) || g.token != old.token || old.ended(a.s.clock.Now()) || reads && (l == nil || !l.shared || l.token != old.token) {
				continue
			}
			old.end = nil
			*g = old
			if !old.until.IsZero() {
				a.s.endAt(b.Key, g, old.until.Sub(a.s.clock.Now()))
			}
			if reads {
				l.readers[b.Handle] = g
			}
		}
	}
}
