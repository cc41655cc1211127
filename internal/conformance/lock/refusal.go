package lock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// ARefusalWritesNothing tries to acquire a held key on a server of its own: the server's log does
// not grow, and no row changes. A server writes a little by itself, so that one of many short
// periods in which it writes nothing is enough.
func (leaseTests) ARefusalWritesNothing(t *testing.T, v *env) {
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
