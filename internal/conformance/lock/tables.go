package lock

import (
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// leasesCheckTheTables: a Locker is made only over tables that are whole, and over connections that commit.
func leasesCheckTheTables(t *testing.T, v *env) {
	open := func(dsn string) error {
		l, closePool, err := v.e.Open(t.Context(), dsn, LeaseOptions{})
		if err == nil {
			err = l.Close(t.Context())
			closePool()
		}
		return err
	}
	if err := suite.RefusesBadSessions(t, v.e.Kind, v.dsn, open); err != nil {
		t.Error(err)
	}
	if err := open(v.dsn); err != nil {
		t.Errorf("the control: %v", err)
	}
	suite.RefusesUnsafeTables(t, v.e.Kind, "dblock_lease", func(statement string) { t.Helper(); v.exec(t, statement) },
		func() error { return open(v.dsn) })
	drop := "DROP INDEX dblock_queue_dead_when"
	if v.e.Kind != devdb.Postgres {
		drop += " ON dblock_queue_dead"
	}
	v.exec(t, drop)
	if err := open(v.dsn); !suite.IsDifferent(err, "dblock_queue_dead.dblock_queue_dead_when") {
		t.Errorf("an index is missing: %v", err)
	}
	v.exec(t, "ALTER TABLE dblock_lease DROP COLUMN shared")
	if err := open(v.dsn); !suite.IsDifferent(err, "dblock_lease.shared") {
		t.Errorf("a column is missing: %v", err)
	}
}
