package session

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// manyLocksFewConns has one process hold 5,000 locks at once, on a few connections.
func manyLocksFewConns(t *testing.T, s *env) {
	const many = 5000
	l := s.process(t, SessionOptions{})
	locks := takeMany(t, l, many)
	if s.e.Kind == devdb.Postgres {
		const ours = " FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
		if n := s.count(t, "SELECT count(*)"+ours); n < many {
			t.Errorf("%d locks on the server, want %d", n, many)
		}
		if n := s.count(t, "SELECT count(DISTINCT pid)"+ours); n > 4 {
			t.Errorf("%d connections have them, want 4 at most", n)
		}
	}
	for _, key := range []string{"0", fmt.Sprint(many - 1)} {
		if s.holder(t, key) == 0 {
			t.Errorf("nobody has %s", key)
		}
	}
	other := s.process(t, SessionOptions{}) // the server has room still
	_, err := other.TryAcquire(t.Context(), "0")
	suite.IsHeld(t, err, "0")
	suite.Release(t, suite.Acquire(t, other, "another"))
	releaseMany(t, locks)
}

// takeMany acquires the keys 0, 1, 2 …
func takeMany(t *testing.T, l dblock.Locker, n int) []*dblock.Lock {
	t.Helper()
	locks := make([]*dblock.Lock, n)
	var callers sync.WaitGroup
	for i := range locks {
		callers.Go(func() { locks[i] = suite.Acquire(t, l, fmt.Sprint(i)) })
	}
	callers.Wait()
	return locks
}

// releaseMany releases a hundred at a time: a busy server confirms thousands too late.
func releaseMany(t *testing.T, locks []*dblock.Lock) {
	t.Helper()
	for some := range slices.Chunk(locks, 100) {
		var callers sync.WaitGroup
		for _, lock := range some {
			callers.Go(func() { suite.Release(t, lock) })
		}
		callers.Wait()
	}
}

// moreThanItMay takes locks until a process may have no more: it is told so, and nothing it has ends for it.
func moreThanItMay(t *testing.T, s *env) {
	l := s.process(t, SessionOptions{MaxConns: 1})
	most := 10_000
	if s.e.Kind == devdb.Postgres {
		most = int(s.count(t, "SELECT current_setting('max_locks_per_transaction')::int * "+
			"(current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) / 5"))
	}
	locks := takeMany(t, l, most)
	for range 3 {
		if _, err := l.Acquire(suite.Soon(t), "one more"); !errors.Is(err, dblock.ErrOverloaded) {
			t.Errorf("beyond %d locks: %v", most, err)
		}
	}
	suite.Release(t, locks[0])
	locks[0] = suite.Acquire(t, l, "one more")
	for _, lock := range locks {
		if lock.Context().Err() != nil {
			t.Fatalf("%q has ended", lock.Key())
		}
	}
	releaseMany(t, locks)
}

// holdsNoSnapshot: a call that waits does not keep VACUUM from its work. The control is one that waits in the server's line.
func holdsNoSnapshot(t *testing.T, s *env) {
	const held = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1 AND backend_xmin IS NOT NULL"
	a := s.process(t, SessionOptions{})
	lock := suite.Acquire(t, a, "k")
	var waits sync.WaitGroup
	for name, inLine := range map[string]bool{"plain": false, "in line": true} {
		l := s.process(t, SessionOptions{Label: name, ServerQueue: inLine, Poll: time.Minute})
		waits.Go(func() { suite.Release(t, suite.Acquire(t, l, "k")) })
	}
	s.standAtServer(t, 1)
	for ctx := suite.Soon(t); s.count(t, held, "in line") != 1; {
		if ctx.Err() != nil {
			t.Fatal("who waits at the server has no snapshot: this test shows nothing")
		}
	}
	s.waitsFor(t, "k", 2)
	for range 100 { // a statement has one while it runs
		if s.count(t, held, "plain") == 0 {
			suite.Release(t, lock)
			waits.Wait()
			return
		}
	}
	t.Error("who waits has a snapshot")
	suite.Release(t, lock)
	waits.Wait()
}
