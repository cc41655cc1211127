package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/pglock"
)

// What is tested here takes several engines at once. Tests of one engine are called by its room.

const (
	quorumTTL       = 2 * time.Second
	quorumProcesses = 4
	quorumTurns     = 20 // while a node is down
)

// beliefs are the times in which processes believed to have the key.
type beliefs struct {
	turns atomic.Int64
	mu    sync.Mutex
	all   []belief
}

type belief struct{ from, to time.Time }

// hold works under a lock for a while, and notes for how long it was trusted.
func (b *beliefs) hold(lock *dblock.Lock) {
	held := belief{from: time.Now()}
	held.to = held.from
	for leave := held.from.Add(rand.N(30 * time.Millisecond)); ; time.Sleep(time.Millisecond) {
		until, now := lock.ValidUntil(), time.Now()
		if lock.Context().Err() != nil || !now.Before(until) || now.After(leave) {
			break
		}
		held.to = now
	}
	b.mu.Lock()
	b.all = append(b.all, held)
	b.mu.Unlock()
	b.turns.Add(1)
}

// overlaps counts how often two believed so at once.
func (b *beliefs) overlaps() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.SortFunc(b.all, func(x, y belief) int { return x.from.Compare(y.from) })
	var last time.Time
	for _, held := range b.all {
		if held.from.Before(last) {
			n++
		}
		if held.to.After(last) {
			last = held.to
		}
	}
	return n
}

// work takes the key, over and over.
func (b *beliefs) work(ctx context.Context, t *testing.T, acquire func(context.Context) (*dblock.Lock, error)) {
	for ctx.Err() == nil {
		waits, cancel := context.WithTimeout(ctx, quorumTTL)
		lock, err := acquire(waits)
		cancel()
		switch {
		case err == nil:
			b.hold(lock)
			_ = lock.Release(ctx)
		case ctx.Err() != nil: // what was under way then may be in doubt
		case !errors.Is(err, dblock.ErrNotAcquired) && !errors.Is(err, dblock.ErrUnavailable):
			t.Errorf("told %v", err)
		}
	}
}

// grows waits for so many more turns.
func (b *beliefs) grows(t *testing.T, n int64, when string) {
	t.Helper()
	began := time.Now()
	for until := b.turns.Load() + n; b.turns.Load() < until; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("%s: nothing goes on", when)
		}
	}
	t.Logf("%s: %d turns in %v", when, n, time.Since(began).Round(time.Millisecond))
}

// TestQuorumFaults kills and freezes each of three servers in turn: two never hold the key at once, it goes on while two servers
// are up, and with two down nothing is granted.
func TestQuorumFaults(t *testing.T) {
	t.Parallel()
	sites := sitesOfTheirOwn(t)
	if len(sites) < 3 {
		t.Log("no servers to kill")
		return
	}
	ctx, stop := context.WithCancel(t.Context())
	var b beliefs
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	var first []Leases
	for range quorumProcesses {
		nodes := []Leases{sites[0].leases(t), sites[1].leases(t), sites[2].leases(t)}
		q := quorumOf(t, nodes)
		first = nodes
		work.Go(func() {
			b.work(ctx, t, func(ctx context.Context) (*dblock.Lock, error) { return q.Acquire(ctx, "k") })
		})
	}
	b.grows(t, quorumTurns, "all are up")
	rounds := 1
	if os.Getenv(suite.EnvSoak) != "" {
		rounds = 10
	}
	for range rounds {
		for i, s := range sites {
			b.oneIsDown(t, s.server, first[i], fmt.Sprint("node ", i))
		}
		b.twoAreDown(t, sites)
	}
	stop()
	work.Wait()
	if n := b.overlaps(); n > 0 {
		t.Errorf("two believed to have the key at once, %d times", n)
	}
}

// oneIsDown kills and freezes a node, and waits until it is back each time.
func (b *beliefs) oneIsDown(t *testing.T, s *devdb.Server, leases Leases, name string) {
	t.Helper()
	down, up := s.Kill, func() error { return s.Restart(t.Context()) }
	for _, how := range []string{"killed", "frozen"} {
		if how == "frozen" {
			down, up = s.Freeze, s.Thaw
		}
		must(t, down())
		b.grows(t, quorumTurns, name+" "+how)
		must(t, up())
		grantsAgain(t, leases)
	}
}

// twoAreDown is when nothing is granted.
func (b *beliefs) twoAreDown(t *testing.T, sites []site) {
	t.Helper()
	must(t, sites[0].server.Kill())
	must(t, sites[1].server.Freeze())
	time.Sleep(100 * time.Millisecond) // what was granted before has been heard
	before := b.turns.Load()
	time.Sleep(2 * quorumTTL)
	if n := b.turns.Load() - before; n > 1 { // one may have been at work
		t.Errorf("two of three are down, and %d turns were granted", n)
	}
	must(t, errors.Join(sites[1].server.Thaw(), sites[0].server.Restart(t.Context())))
	b.grows(t, quorumTurns, "all are up again")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// grantsAgain waits until a node grants again.
func grantsAgain(t *testing.T, l Leases) {
	t.Helper()
	ctx := suite.Soon(t)
	for {
		lock, err := l.Acquire(ctx, "is it back")
		if err == nil {
			_ = lock.Release(ctx)
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestFaultsControlOneOfThree is the same where one node is enough.
func TestFaultsControlOneOfThree(t *testing.T) {
	t.Parallel()
	sites := sharedSites(t)
	ctx, stop := context.WithCancel(t.Context())
	var b beliefs
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	for range quorumProcesses {
		nodes := []Leases{sites[0].leases(t), sites[1].leases(t), sites[2].leases(t)}
		work.Go(func() {
			b.work(ctx, t, func(ctx context.Context) (*dblock.Lock, error) {
				for {
					for _, n := range nodes {
						if lock, err := n.TryAcquire(ctx, "k"); err == nil || ctx.Err() != nil {
							return lock, err
						}
					}
					time.Sleep(time.Millisecond)
				}
			})
		})
	}
	b.grows(t, quorumTurns, "one is enough")
	stop()
	work.Wait()
	if b.overlaps() == 0 {
		t.Error("never two at once: the test with a majority shows nothing")
	}
}

// TestQuorumIsRefusedByGuards: there is no token to guard with.
func TestQuorumIsRefusedByGuards(t *testing.T) {
	t.Parallel()
	var nodes []Leases
	var lockers []dblock.Locker
	for _, s := range sharedSites(t) {
		nodes = append(nodes, s.leases(t))
		lockers = append(lockers, promised{nodes[len(nodes)-1]})
	}
	q, err := dblock.NewQuorum(lockers, dblock.QuorumOptions{})
	must(t, err)
	lock := suite.Acquire(t, q, "k")
	for _, n := range nodes {
		var err error
		switch n := n.(type) {
		case *pglock.Lease:
			err = n.GuardedTx(t.Context(), lock, func(context.Context, pgx.Tx) error { return nil })
		case *mysqllock.Lease:
			err = n.GuardedTx(t.Context(), lock, func(context.Context, *sql.Tx) error { return nil })
		}
		if !errors.Is(err, dblock.ErrUnsupported) {
			t.Errorf("a %T guards with the lock of a Quorum: %v", n, err)
		}
	}
	suite.Release(t, lock)
	must(t, q.Close(suite.Soon(t)))
}

// promised is a node that is said to be durable: the servers that tests share are not.
type promised struct{ Leases }

func (promised) Caps() dblock.Caps { return dblock.Caps{Durable: true} }

// TestQuorumRefusesWhatForgets: a server that may lose commits in a crash is no node, and the error names the setting.
func TestQuorumRefusesWhatForgets(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			server, dsn, db := suite.ServerOfItsOwn(t, kind)
			if server == nil {
				return
			}
			good := []dblock.Locker{site{kind, dsn, server}.leases(t), site{kind, dsn, server}.leases(t)}
			refused := func(dsn, says string) {
				t.Helper()
				l := site{kind, dsn, server}.leases(t)
				_, err := dblock.NewQuorum(append(slices.Clone(good), l), dblock.QuorumOptions{})
				if says == "" && err != nil {
					t.Errorf("%s: %v", dsn, err)
				}
				if says != "" && (!errors.Is(err, dblock.ErrUnsupported) || !strings.Contains(err.Error(), "nodes[2]") ||
					!strings.Contains(err.Error(), says)) {
					t.Errorf("%s: %v, want it to name %s", dsn, err, says)
				}
			}
			refused(dsn, "")
			if kind == devdb.Postgres {
				refused(suite.AppendQuery(dsn, "synchronous_commit=local"), "")
				refused(suite.AppendQuery(dsn, "synchronous_commit=off"), "synchronous_commit = off")
				return
			}
			admin := suite.Connect(t, kind, server.AdminDSN())
			_, err := admin.ExecContext(t.Context(), "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
			must(t, err)
			refused(dsn, "innodb_flush_log_at_trx_commit = 2")
			_, err = admin.ExecContext(t.Context(), "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
			must(t, err)
			_, err = admin.ExecContext(t.Context(), "SET GLOBAL sync_binlog = 0")
			must(t, err)
			var logs bool
			must(t, db.QueryRowContext(t.Context(), "SELECT @@log_bin").Scan(&logs))
			if logs {
				refused(dsn, "sync_binlog = 0")
			} else {
				refused(dsn, "")
			}
		})
	}
}
