package lock

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/pglock"
)

// The tests of quorums take several engines at once, so that no driver's tests can run them.

func TestMain(m *testing.M) { testdb.Main(m) }

const quorumTTL = 10 * time.Second // a busy machine must not lose what a test holds

// node is the database of a quorum's node.
type node struct {
	kind   devdb.Kind
	dsn    string
	server *devdb.Server // nil: other tests use it
}

// open opens leases with a pool of their own.
func (n node) open(ctx context.Context) (l Leases, closePool func(), err error) {
	if n.kind == devdb.Postgres {
		pool, err := pgxpool.New(ctx, n.dsn)
		if err != nil {
			return nil, nil, err
		}
		l, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{TTL: quorumTTL})
		return l, pool.Close, err
	}
	db, err := suite.ConnectOn(n.kind, n.dsn, &faultconn.Dialer{})
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(8)
	l, err = mysqllock.NewLeaseLocker(ctx, db, mysqllock.LeaseOptions{TTL: quorumTTL})
	return l, func() { _ = db.Close() }, err
}

// leases opens the leases of a process, which the test closes at its end.
func (n node) leases(t *testing.T) Leases {
	t.Helper()
	l, closePool, err := n.open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = suite.CloseWithin(l, 10*time.Second)
		closePool()
	})
	return l
}

func leasesOf(t *testing.T, nodes []node) (leases []Leases) {
	t.Helper()
	for _, n := range nodes {
		leases = append(leases, n.leases(t))
	}
	return leases
}

// nodesOfTheirOwn are three durable servers, of as many engines as there are; fewer if none can be
// killed.
func nodesOfTheirOwn(t *testing.T) (nodes []node) {
	t.Helper()
	kinds := devdb.Available(t.Context())
	for i := 0; len(nodes) < 3 && i < 3*len(kinds); i++ {
		kind := kinds[i%len(kinds)]
		if server, db := suite.OwnServer(t, kind); server != nil {
			t.Logf("node %d: %s %s", len(nodes), kind, server.Version)
			nodes = append(nodes, node{kind, db.DSN, server})
		}
	}
	return nodes
}

// durable is a node that claims to be durable: the servers that tests share are not.
type durable struct{ Leases }

func (durable) Caps() dblock.Caps { return dblock.Caps{Durable: true} }

// quorumOf is the Quorum of a process. The test closes it at its end.
func quorumOf(t *testing.T, nodes []Leases) *dblock.Quorum {
	t.Helper()
	var lockers []dblock.Locker
	for _, n := range nodes {
		lockers = append(lockers, durable{n})
	}
	q := suite.Must(dblock.NewQuorum(lockers, dblock.QuorumOptions{NodeTimeout: quorumTTL / 8}))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = q.Close(ctx)
	})
	return q
}

// TestQuorumFaults kills and freezes three servers. While one is down callers of two processes hand
// a key on, and a lock that was acquired before is kept. While two are down nothing is granted.
func TestQuorumFaults(t *testing.T) {
	t.Parallel()
	nodes := nodesOfTheirOwn(t)
	if len(nodes) < 3 {
		t.Log("no servers to kill")
		return
	}
	leases := leasesOf(t, nodes)
	q, other := quorumOf(t, leases), quorumOf(t, leasesOf(t, nodes))
	kept := acquireSoon(t, q, "kept")
	works := func() {
		t.Helper()
		for _, q := range []*dblock.Quorum{q, other} {
			suite.Release(t, acquireSoon(t, q, "k"))
		}
		suite.Until(t, "the kept lock is seen", func() bool {
			_, err := other.TryAcquire(t.Context(), "kept")
			require.Error(t, err, "two processes have the kept lock")
			return errors.Is(err, dblock.ErrNotAcquired)
		})
		assert.NoError(t, context.Cause(kept.Context()))
	}
	for i, n := range nodes {
		require.NoError(t, n.server.Kill())
		time.Sleep(quorumTTL) // what it had granted has ended
		works()
		require.NoError(t, n.server.Restart(t.Context()))
		suite.Until(t, "the node has the kept lock again", func() bool {
			_, err := leases[i].Holder(t.Context(), "kept")
			return err == nil
		})
		require.NoError(t, n.server.Freeze())
		works()
		require.NoError(t, n.server.Thaw())
	}
	require.NoError(t, nodes[0].server.Kill())
	require.NoError(t, nodes[1].server.Freeze())
	ctx, cancel := context.WithTimeout(t.Context(), 2*quorumTTL)
	defer cancel()
	assert.Error(t, suite.Second(other.Acquire(ctx, "free")), "with two of three down")
	suite.Wait(t, kept.Context().Done(), "the loss of the kept lock")
	require.NoError(t, nodes[1].server.Thaw())
	require.NoError(t, nodes[0].server.Restart(t.Context()))
	suite.Release(t, acquireSoon(t, other, "kept"))
}

// acquireSoon is patient with nodes that are slow to answer.
func acquireSoon(t *testing.T, q *dblock.Quorum, key string) (lock *dblock.Lock) {
	t.Helper()
	suite.Until(t, key+" is acquired", func() (acquired bool) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*quorumTTL)
		defer cancel()
		var err error
		lock, err = q.Acquire(ctx, key)
		return err == nil
	})
	return lock
}

// TestQuorumIsRefusedByGuards: a quorum's lock has no token to guard with.
func TestQuorumIsRefusedByGuards(t *testing.T) {
	t.Parallel()
	var nodes []Leases // of databases on the servers that tests share
	for i, kinds := 0, testdb.Engines(); i < 3; i++ {
		kind := kinds[i%len(kinds)]
		nodes = append(nodes, node{kind: kind, dsn: testdb.Migrated(t, kind)}.leases(t))
	}
	q := quorumOf(t, nodes)
	lock := suite.Acquire(t, q, "k")
	for _, n := range nodes {
		var err error
		switch n := n.(type) {
		case *pglock.LeaseLocker:
			err = n.GuardedTx(t.Context(), lock, func(context.Context, pgx.Tx) error { return nil })
		case *mysqllock.LeaseLocker:
			err = n.GuardedTx(t.Context(), lock, func(context.Context, *sql.Tx) error { return nil })
		}
		assert.ErrorIs(t, err, dblock.ErrUnsupported, "%T", n)
	}
	suite.Release(t, lock)
}

// TestQuorumRefusesWhatForgets: a server that may lose commits in a crash is no node, and the error
// names the setting.
func TestQuorumRefusesWhatForgets(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			server, db := suite.OwnServer(t, kind)
			if server == nil {
				return
			}
			dsn, n := db.DSN, node{kind, db.DSN, server}
			good := []dblock.Locker{n.leases(t), n.leases(t)}
			check := func(dsn, forgets string) {
				t.Helper()
				l := node{kind, dsn, server}.leases(t)
				_, err := dblock.NewQuorum(append(slices.Clone(good), l), dblock.QuorumOptions{})
				if forgets == "" {
					assert.NoError(t, err, dsn)
					return
				}
				assert.ErrorIs(t, err, dblock.ErrUnsupported)
				assert.ErrorContains(t, err, "nodes[2]")
				assert.ErrorContains(t, err, forgets)
			}
			check(dsn, "")
			if kind == devdb.Postgres {
				check(suite.AppendQuery(dsn, "synchronous_commit=local"), "")
				check(suite.AppendQuery(dsn, "synchronous_commit=off"), "synchronous_commit = off")
				return
			}
			admin := suite.OpenDB(t, kind, server.AdminDSN())
			admin.Exec(t, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
			check(dsn, "innodb_flush_log_at_trx_commit = 2")
			admin.Exec(t, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
			admin.Exec(t, "SET GLOBAL sync_binlog = 0")
			logs := db.Count(t, "SELECT @@log_bin")
			check(dsn, map[int64]string{1: "sync_binlog = 0"}[logs])
		})
	}
}
