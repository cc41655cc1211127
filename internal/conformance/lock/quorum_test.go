package lock

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
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

func TestMain(m *testing.M) {
	quorumMain()
	testdb.Main(m)
}

const quorumTTL = 2 * time.Second

// node is the database of a quorum's node.
type node struct {
	kind   devdb.Kind
	dsn    string
	server *devdb.Server // nil: other tests use it
}

// open opens leases with a pool of their own, whose connections the dialer breaks.
func (n node) open(ctx context.Context, dialer *faultconn.Dialer) (l Leases, closePool func(), err error) {
	if n.kind == devdb.Postgres {
		cfg, err := pgxpool.ParseConfig(n.dsn)
		if err != nil {
			return nil, nil, err
		}
		cfg.ConnConfig.DialFunc = dialer.DialContext
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return nil, nil, err
		}
		l, err := pglock.NewLease(ctx, pool, pglock.LeaseOptions{TTL: quorumTTL})
		return l, pool.Close, err
	}
	cfg, err := mysql.ParseDSN(n.dsn)
	if err != nil {
		return nil, nil, err
	}
	cfg.DialFunc, cfg.Logger = dialer.DialContext, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(8)
	l, err = mysqllock.NewLease(ctx, db, mysqllock.LeaseOptions{TTL: quorumTTL})
	return l, func() { _ = db.Close() }, err
}

// leases opens the leases of a process, which the test closes at its end.
func (n node) leases(t *testing.T) Leases {
	t.Helper()
	l, closePool, err := n.open(t.Context(), &faultconn.Dialer{})
	require.NoError(t, err)
	t.Cleanup(func() {
		closeWithin(l, 10*time.Second)
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
		if server, dsn, _ := suite.ServerOfItsOwn(t, kind); server != nil {
			t.Logf("node %d: %s %s", len(nodes), kind, server.Version)
			nodes = append(nodes, node{kind, dsn, server})
		}
	}
	return nodes
}

// sharedNodes are three databases on the servers that tests share.
func sharedNodes(t *testing.T) (nodes []node) {
	t.Helper()
	kinds := testdb.Engines()
	for i := range 3 {
		kind := kinds[i%len(kinds)]
		nodes = append(nodes, node{kind: kind, dsn: testdb.Migrated(t, kind)})
	}
	return nodes
}

// durable is a node that claims to be durable: the servers that tests share are not.
type durable struct{ Leases }

func (durable) Caps() dblock.Caps { return dblock.Caps{Durable: true} }

func quorumOf(nodes []Leases, timeout time.Duration) (*dblock.Quorum, error) {
	var lockers []dblock.Locker
	for _, n := range nodes {
		lockers = append(lockers, durable{n})
	}
	return dblock.NewQuorum(lockers, dblock.QuorumOptions{NodeTimeout: timeout})
}

// TestFaultsOfQuorumExpireIn cuts two of three nodes off while a lock's end is set: no other
// process acquires the key before the lock has ended.
func TestFaultsOfQuorumExpireIn(t *testing.T) {
	t.Parallel()
	nodes := sharedNodes(t)
	other := suite.Must(quorumOf(leasesOf(t, nodes), 0))(t)
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	modes := []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter, faultconn.Stall, faultconn.Late}
	var struck atomic.Int64
	suite.Crowd(len(modes), func(i int) {
		for k := 1; k <= 4; k++ {
			struck.Add(quorumExpires(t, nodes, other, modes[i], k))
		}
	})
	assert.Positive(t, struck.Load(), "nodes that were cut off")
}

// quorumExpires is one trial, and returns how many nodes were cut off.
func quorumExpires(t *testing.T, nodes []node, other *dblock.Quorum, mode faultconn.Mode, k int) (struck int64) {
	var dialers [3]faultconn.Dialer
	var leases []Leases
	for i, n := range nodes {
		l, closePool, err := n.open(t.Context(), &dialers[i])
		if !assert.NoError(t, err) {
			return 0
		}
		defer func() {
			closeWithin(l, 5*time.Second)
			dialers[i].CloseAll()
			closePool()
		}()
		leases = append(leases, l)
	}
	q, err := quorumOf(leases, quorumTTL/8)
	if !assert.NoError(t, err) {
		return 0
	}
	key := fmt.Sprint(mode, " ", k)
	lock, err := q.Acquire(suite.Soon(t), key)
	if !assert.NoError(t, err) {
		return 0
	}
	for i := range dialers[:2] {
		dialers[i].Arm(k, mode, nil)
	}
	err = lock.ExpireIn(t.Context(), 300*time.Millisecond)
	for i := range dialers[:2] {
		if dialers[i].Disarm() {
			struck++
		}
		dialers[i].Release()
	}
	assert.True(t, err == nil || isAny(err, dblock.ErrLost, dblock.ErrOutcomeUnknown, dblock.ErrUnavailable), "%v", err)
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if next, err := other.TryAcquire(t.Context(), key); err == nil {
			assert.Error(t, lock.Context().Err(), "%s: two processes have the key", key)
			_ = next.Release(t.Context())
			break
		}
	}
	_ = lock.Release(t.Context())
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = q.Close(ctx)
	return struck
}

// TestQuorumIsRefusedByGuards: a quorum's lock has no token to guard with.
func TestQuorumIsRefusedByGuards(t *testing.T) {
	t.Parallel()
	nodes := leasesOf(t, sharedNodes(t))
	q := suite.Must(quorumOf(nodes, 0))(t)
	lock := suite.Acquire(t, q, "k")
	for _, n := range nodes {
		var err error
		switch n := n.(type) {
		case *pglock.Lease:
			err = n.GuardedTx(t.Context(), lock, func(context.Context, pgx.Tx) error { return nil })
		case *mysqllock.Lease:
			err = n.GuardedTx(t.Context(), lock, func(context.Context, *sql.Tx) error { return nil })
		}
		assert.ErrorIs(t, err, dblock.ErrUnsupported, "%T", n)
	}
	suite.Release(t, lock)
	assert.NoError(t, q.Close(suite.Soon(t)))
}

// TestQuorumRefusesWhatForgets: a server that may lose commits in a crash is no node, and the error
// names the setting.
func TestQuorumRefusesWhatForgets(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			server, dsn, db := suite.ServerOfItsOwn(t, kind)
			if server == nil {
				return
			}
			n := node{kind, dsn, server}
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
			var logs bool
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT @@log_bin").Scan(&logs))
			check(dsn, map[bool]string{true: "sync_binlog = 0"}[logs])
		})
	}
}
