package mysqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/mysql"
)

// leaseDriver executes the statements of lease locks on MySQL and MariaDB.
type leaseDriver struct {
	*mysql.Members
	db    *mysql.Database
	kept  *mysql.Kept   // on which locks are acquired
	watch time.Duration // between two looks at what is waited for; 0: none

	notDurable string // the setting for which commits don't survive a crash; empty: they do

	q mysqldb.Queries
}

var (
	_ lease.Driver    = (*leaseDriver)(nil)
	_ lease.Inspector = (*leaseDriver)(nil)
)

// backend returns what a LeaseLocker needs. A statement may wait for a gap when its client has given up.
func (e *leaseDriver) backend() lease.Backend {
	traits := lease.Traits{Classify: e.Classify, MaxStatementBytes: e.db.LongestStatement(), LockWait: 2 * boundWait}
	if !e.db.MariaDB {
		traits.LockWait = e.db.LockWait
	}
	return lease.Backend{Member: e, Driver: e, Inspector: e, Traits: traits, Close: func() {
		e.kept.Close()
		e.Close()
	}}
}

// openDriver finds the tables, and checks that they and the server meet the requirements.
func openDriver(
	ctx context.Context, host *sql.DB, schemaName string, watch time.Duration,
) (*leaseDriver, lease.Backend, error) {
	db, err := mysql.Open(ctx, host, schemaName)
	if err != nil {
		return nil, lease.Backend{}, err
	}
	set, setBack := bounds(db)
	e := &leaseDriver{Members: mysql.NewMembers(db, false), db: db, kept: mysql.NewKept(db.Pool, set, setBack), watch: watch}
	if e.notDurable, err = e.undurable(ctx); err != nil {
		return nil, lease.Backend{}, mysql.Unavailable(err)
	}
	return e, e.backend(), nil
}
