package dblocktest

import (
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
)

// Server stands for the database that processes have in common. Make it with NewServer. It is safe
// for concurrent use, and needs no end.
type Server struct {
	clock clock.Clock
	rows  *memlease.Server
}

// NewServer makes a Server on which nothing is held, with a clock for it and for all its Lockers;
// nil is the machine's clock.
func NewServer(c *Clock) *Server {
	s := &Server{clock: clock.Real{}}
	if c != nil {
		s.clock = c
	}
	s.rows = memlease.NewServer(s.clock)
	return s
}

// Check says what a guard would in a database, such as pglock.LeaseLocker.Guard: whether the lock
// that f names is still its holder's. As there, a lock counts as its holder's until another holder
// has it or it was released, even if its time is up. It is for the fake of a service's storage,
// before each write.
//
// Errors: dblock.ErrFenced.
func (s *Server) Check(f dblock.Fence) error {
	if !s.rows.IsHeld(lease.ReleaseRequest{Key: f.Key, Token: f.Token, Handle: f.Handle, Mode: f.Mode}) {
		return fmt.Errorf("%w: lease %q with token %d is no longer held: roll back", dblock.ErrFenced, f.Key, f.Token)
	}
	return nil
}
