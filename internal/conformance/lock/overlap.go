package lock

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// overlapsWithoutDeadlocks has processes acquire overlapping keys at once, in each mode, some of
// the holders inside guarded transactions. The server counts deadlocks, also those that dblock
// hides.
func overlapsWithoutDeadlocks(t *testing.T, v *env) {
	const processes, callers = 8, 3
	own, server := v.onAServerOfItsOwn(t)
	own.Exec(t, "CREATE TABLE written (n INT)")
	rounds := 40
	if os.Getenv(suite.EnvSoak) != "" {
		rounds = 1_000
	}
	before := own.deadlocks(t)
	suite.Crowd(processes, func(int) {
		l, closePool, err := v.e.Open(t.Context(), own.DSN, LeaseOptions{TTL: time.Minute})
		if !assert.NoError(t, err) {
			return
		}
		suite.Crowd(callers, func(int) {
			for range rounds {
				own.acquireSome(t, l)
			}
		})
		assert.NoError(t, l.Close(t.Context()))
		closePool() // on Postgres a session reports its deadlocks when it ends
	})
	assert.Positive(t, own.Count(t, "SELECT count(*) FROM written"), "guarded writes")
	own.hasOneDeadlock(t, before, server)
}

// acquireSome tries to acquire some keys at once, so that they share statements, and releases at
// once what it got.
func (v *env) acquireSome(t *testing.T, l Leases) {
	const keys, most = 12, 5
	anyMode := func() []dblock.Option {
		return [][]dblock.Option{nil, {dblock.WithShared()}, {dblock.WithPermits(1+rand.IntN(2), 3)}}[rand.IntN(3)]
	}
	some := rand.Perm(keys)[:1+rand.IntN(most)]
	locks := make([]*dblock.Lock, len(some))
	suite.Crowd(len(some), func(i int) {
		lock, err := l.TryAcquire(t.Context(), fmt.Sprint("k", some[i]), anyMode()...)
		locks[i] = lock
		assert.True(t, err == nil || isAny(err, dblock.ErrNotAcquired), "%v", err)
	})
	suite.Crowd(len(some), func(i int) {
		if locks[i] == nil {
			return
		}
		if rand.IntN(3) == 0 {
			assert.NoError(t, v.e.Guarded(t.Context(), l, locks[i], "INSERT INTO written VALUES (1)", func() {}))
		}
		suite.Release(t, locks[i])
	})
}

// deadlocks returns how many the server has counted, in this database if it tells them apart.
func (v *env) deadlocks(t *testing.T) int64 {
	t.Helper()
	if v.Kind == devdb.Postgres {
		return v.Count(t, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
	}
	return v.Count(t, "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'")
}

// hasOneDeadlock makes a deadlock, and fails if the server counts others. A server of other tests
// counts theirs, too.
func (v *env) hasOneDeadlock(t *testing.T, before int64, own *devdb.Server) {
	t.Helper()
	v.deadlock(t)
	if own != nil {
		assert.EqualValues(t, 1, v.deadlocks(t)-before, "deadlocks that the server counted: one was made on purpose")
	}
}

// deadlock makes a deadlock, and waits until it is counted.
func (v *env) deadlock(t *testing.T) {
	t.Helper()
	v.Exec(t, "CREATE TABLE two (id INT PRIMARY KEY, n INT)")
	v.Exec(t, "INSERT INTO two VALUES (1, 0), (2, 0)")
	const update = "UPDATE two SET n = 1 WHERE id = %d"
	var first sync.WaitGroup
	first.Add(2)
	var refused atomic.Int64
	suite.Crowd(2, func(i int) {
		tx, err := v.BeginTx(t.Context(), nil)
		if err == nil {
			defer func() { _ = tx.Rollback() }()
			_, err = tx.ExecContext(t.Context(), fmt.Sprintf(update, 1+i))
		}
		first.Done()
		first.Wait()
		if err == nil {
			_, err = tx.ExecContext(t.Context(), fmt.Sprintf(update, 2-i))
		}
		if err != nil && strings.Contains(strings.ToLower(err.Error()), "deadlock") {
			refused.Add(1)
		}
	})
	require.EqualValues(t, 1, refused.Load(), "transactions that were refused for a deadlock")
	if v.Kind == devdb.Postgres {
		v.SetMaxIdleConns(0)
		v.Until(t, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`, 0)
	}
}

// aRefusalWritesNothing tries to acquire a held key on a server of its own: the server's log does
// not grow, and no row changes. A server writes a little by itself, so that one of many short
// periods in which it writes nothing is enough.
func aRefusalWritesNothing(t *testing.T, v *env) {
	own, server := v.onAServerOfItsOwn(t)
	a, b := own.process(t, LeaseOptions{TTL: time.Hour}), own.process(t, LeaseOptions{TTL: time.Hour})
	lock := suite.Acquire(t, a, "k")
	suite.IsFree(t, b, "another key")
	refuse := func() {
		for range 5 {
			suite.IsTaken(t, b, "k")
		}
	}
	least := own.logged(t, refuse)
	for n := 1; least > 0 && n < 500; n++ {
		least = min(least, own.logged(t, refuse))
	}
	if server != nil {
		assert.Zero(t, least, "what refusals wrote to the log")
	}
	assert.NotZero(t, own.logged(t, func() { suite.IsFree(t, b, "another key") }), "the control: what a grant wrote")
	own.countChanges(t, "dblock_lease", "dblock_member", "dblock_lease_waiter")
	refuse()
	assert.Zero(t, own.Count(t, "SELECT n FROM changes"), "rows that refusals changed")
	suite.Release(t, lock)
}

// logged returns by how many bytes the server's log grows while f runs. MySQL, which reports its
// position late, counts writes.
func (v *env) logged(t *testing.T, f func()) int64 {
	t.Helper()
	position := map[devdb.Kind]string{
		devdb.Postgres: "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint",
		devdb.MariaDB: "SELECT variable_value FROM information_schema.global_status " +
			"WHERE variable_name = 'Innodb_lsn_current'",
		devdb.MySQL: "SELECT variable_value FROM performance_schema.global_status " +
			"WHERE variable_name = 'Innodb_log_write_requests'",
	}[v.Kind]
	before := v.Count(t, position)
	f()
	return v.Count(t, position) - before
}
