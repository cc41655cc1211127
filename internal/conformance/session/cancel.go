package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

const (
	cancelTrials     = 2_000
	soakCancelTrials = 10_000
	cancelCallers    = 8
)

// cancelsRaceGrants has callers give up in the moment in which they may be granted the lock, and release under contexts that
// have ended: in the end nobody has anything. That is what every test of the suite looks for.
func cancelsRaceGrants(t *testing.T, s *env) {
	n := cancelTrials
	if os.Getenv(suite.EnvSoak) != "" {
		n = soakCancelTrials
	}
	var granted, gaveUp int
	var mu sync.Mutex
	procs := []dblock.Locker{s.process(t, SessionOptions{Poll: 10 * time.Millisecond}), s.process(t, SessionOptions{Poll: 10 * time.Millisecond})}
	var callers sync.WaitGroup
	for c := range cancelCallers {
		callers.Go(func() {
			for i := range n / cancelCallers {
				got, err := cancelOnce(t.Context(), procs[c%2], fmt.Sprint("k", i%3))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if got {
					granted++
				} else {
					gaveUp++
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	t.Logf("%d were granted the lock, %d gave up", granted, gaveUp)
	if granted == 0 || gaveUp == 0 {
		t.Error("only one of both has happened: this test shows nothing")
	}
}

// cancelOnce acquires under a context that ends soon, and releases under it.
func cancelOnce(ctx context.Context, l dblock.Locker, key string) (granted bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(rand.N(2*time.Millisecond), cancel)
	defer timer.Stop()
	lock, err := l.Acquire(ctx, key)
	if err == nil {
		cancel()
		return true, lock.Release(ctx)
	}
	if errors.Is(err, dblock.ErrNotAcquired) && errors.Is(err, context.Canceled) {
		return false, nil
	}
	return false, err
}

// controlCancelsLeak does the same as it is so often written by hand: a connection of the pool, the server's function, and a
// deferred release under the same context.
func controlCancelsLeak(t *testing.T, s *env) {
	db := suite.Connect(t, s.e.Kind, s.dsn)
	db.SetMaxOpenConns(cancelCallers)
	db.SetMaxIdleConns(cancelCallers)
	lock, unlock := "SELECT GET_LOCK('naive', 1)", "SELECT RELEASE_LOCK('naive')"
	left := "SELECT IS_USED_LOCK('naive') IS NOT NULL"
	if s.e.Kind == devdb.Postgres {
		lock, unlock, left = "SELECT pg_advisory_lock(7)", "SELECT pg_advisory_unlock(7)", "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND "+
			"granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
	}
	for range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		naiveOnce(ctx, cancel, db, lock, unlock)
		if s.count(t, left) > 0 {
			_ = db.Close() // which ends what was left
			return
		}
	}
	t.Error("nothing was left: the test of the session locks shows nothing")
}

func naiveOnce(ctx context.Context, cancel func(), db *sql.DB, lock, unlock string) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	timer := time.AfterFunc(rand.N(2*time.Millisecond), cancel)
	defer timer.Stop()
	var got any
	if err := conn.QueryRowContext(ctx, lock).Scan(&got); err != nil {
		return
	}
	cancel()
	_ = conn.QueryRowContext(ctx, unlock).Scan(&got)
}

// aReleaseBesideTheDead releases while the caller's context has ended, beside callers who wait: the next one has it at once.
func aReleaseBesideTheDead(t *testing.T, s *env) {
	l := s.process(t, SessionOptions{})
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		lock := suite.Acquire(t, l, "k")
		got := make(chan *dblock.Lock, 1)
		go func() { got <- suite.Acquire(t, l, "k") }()
		if err := lock.Release(dead); err != nil {
			t.Error(err)
		}
		suite.Release(t, <-got)
	}
	if _, err := l.Acquire(dead, "k"); !errors.Is(err, context.Canceled) || !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("under a context that has ended: %v", err)
	}
}
