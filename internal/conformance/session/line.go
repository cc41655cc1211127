package session

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// atServer is how many calls stand in the server's own line.
func (s *env) atServer(t *testing.T) int64 {
	t.Helper()
	if s.e.Kind == devdb.Postgres {
		return s.count(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND "+
			"database = (SELECT oid FROM pg_database WHERE datname = current_database())")
	}
	return s.count(t, "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'User%lock' AND info LIKE '%GET_LOCK%'")
}

func (s *env) standAtServer(t *testing.T, n int64) {
	t.Helper()
	for ctx := suite.Soon(t); s.atServer(t) != n; {
		if ctx.Err() != nil {
			t.Fatalf("%d wait at the server, want %d", s.atServer(t), n)
		}
	}
}

// sessionServedInLine: in the server's line who comes first is served first, whatever process it is of.
func sessionServedInLine(t *testing.T, s *env) {
	const calls = 9
	var procs []dblock.Locker
	for range 3 {
		procs = append(procs, s.process(t, SessionOptions{ServerQueue: true, MaxConns: calls}))
	}
	lock := suite.Acquire(t, procs[0], "k")
	served := make(chan int, calls)
	for i := range calls {
		go func() {
			lock := suite.Acquire(t, procs[i%3], "k")
			served <- i
			suite.Release(t, lock)
		}()
		s.standAtServer(t, int64(i+1))
	}
	suite.Release(t, lock)
	var order []int
	for range calls {
		order = append(order, <-served)
	}
	if !slices.IsSorted(order) {
		t.Errorf("served in the order %v", order)
	}
}

// sessionLeavesTheLine has calls give up that wait at the server: they leave nothing, and who stands behind them is served. More
// calls than there may be connections are refused.
func sessionLeavesTheLine(t *testing.T, s *env) {
	a := s.process(t, SessionOptions{})
	b := s.process(t, SessionOptions{ServerQueue: true, MaxConns: 3}) // one is shared
	lock := suite.Acquire(t, a, "k")
	ctx, giveUp := context.WithCancel(suite.Soon(t))
	gone := make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx, "k")
		gone <- err
	}()
	s.standAtServer(t, 1)
	got := make(chan *dblock.Lock, 1)
	go func() { got <- suite.Acquire(t, b, "k") }()
	s.standAtServer(t, 2)
	if _, err := b.Acquire(t.Context(), "k"); !errors.Is(err, dblock.ErrOverloaded) {
		t.Errorf("without a connection to wait on: %v", err)
	}
	suite.Release(t, suite.Acquire(t, b, "another key"))
	giveUp()
	if held := suite.IsHeld(t, <-gone, "k"); !errors.Is(held, context.Canceled) {
		t.Errorf("%v does not say what ended the wait", held)
	}
	s.standAtServer(t, 1)
	suite.Release(t, lock)
	suite.Release(t, <-got)
	suite.Release(t, suite.Acquire(t, a, "k"))
}

// theLineEndsWithConns: a lock that was waited for in the server's line ends with its connection alone.
func theLineEndsWithConns(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{}), s.process(t, SessionOptions{ServerQueue: true, IdleTimeout: 3 * time.Second})
	lock, other := suite.Acquire(t, a, "k"), suite.Acquire(t, b, "other")
	got := make(chan *dblock.Lock, 1)
	go func() { got <- suite.Acquire(t, b, "k") }()
	s.standAtServer(t, 1)
	suite.Release(t, lock)
	waited := <-got
	if err := s.end(t.Context(), s.holder(t, "k"), false); err != nil {
		t.Fatal(err)
	}
	suite.IsLost(t, waited, dblock.Disconnected)
	if other.Context().Err() != nil {
		t.Errorf("another lock has ended with it: %v", context.Cause(other.Context()))
	}
	suite.Release(t, other)
	suite.Release(t, suite.Acquire(t, b, "k"))
}
