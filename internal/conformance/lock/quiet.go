package lock

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// aRefusalWritesNothing asks for a live lease over and over, on a server where nobody else is: its log does not grow,
// and no row changes. A server writes a little of its own now and then, so that one quiet look is enough, and a look is short.
func aRefusalWritesNothing(t *testing.T, v *env) {
	own, server := v.onAServerOfItsOwn(t)
	holder, asker := own.process(t, LeaseOptions{TTL: time.Hour}), own.process(t, LeaseOptions{TTL: time.Hour})
	lock := suite.Acquire(t, holder, "k")
	suite.Release(t, suite.Acquire(t, asker, "another key"))
	refuse := func() {
		for range 5 {
			_, err := asker.TryAcquire(t.Context(), "k")
			suite.IsHeld(t, err, "k")
		}
	}
	least := own.logged(t, refuse)
	for looks := 1; least > 0 && looks < 500; looks++ {
		least = min(least, own.logged(t, refuse))
	}
	granted := own.logged(t, func() { suite.Release(t, suite.Acquire(t, asker, "another key")) })
	t.Logf("5 refusals wrote %d to the log, a grant and a release %d", least, granted)
	if least > 0 && server != nil {
		t.Errorf("5 refusals wrote %d to the log", least)
	}
	if granted == 0 {
		t.Error("a grant wrote nothing: this shows nothing")
	}
	own.countChanges(t, "dblock_lease", "dblock_member", "dblock_lease_waiter")
	refuse()
	if n := own.count(t, "SELECT n FROM changes"); n > 0 {
		t.Errorf("5 refusals changed %d rows", n)
	}
	suite.Release(t, lock)
}

// logged is by how many bytes the server's log grows while f runs; on MySQL, whose position is told late, by how many
// writes.
func (v *env) logged(t *testing.T, f func()) int64 {
	t.Helper()
	position := map[devdb.Kind]string{
		devdb.Postgres: "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint",
		devdb.MariaDB:  "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Innodb_lsn_current'",
		devdb.MySQL:    "SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Innodb_log_write_requests'",
	}[v.e.Kind]
	before := v.count(t, position)
	f()
	return v.count(t, position) - before
}
