package mysqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/mysql"
)

// leaseDriver executes the statements of lease locks on MySQL and MariaDB. It has a part for the
// rows of each table.
type leaseDriver struct {
	*conns
	leases  *leaseRows
	readers *readerRows
	permits *permitRows
	tickets *ticketRows
	watch   time.Duration // between two looks at what is waited for; 0: none

	notDurable string // the setting for which commits don't survive a crash; empty: they do
}

// conns are the connections on which statements run.
type conns struct {
	*mysql.Members
	db   *mysql.Database
	kept *mysql.Kept // on which locks are acquired
	q    mysqldb.Queries
}

// leaseRows are the rows of dblock_lease: one holder for each key.
type leaseRows struct{ *conns }

// readerRows are the rows of dblock_reader: shared holders of keys whose leases are open to them.
type readerRows struct{ *leaseRows }

// permitRows are the rows of dblock_semaphore and dblock_permit.
type permitRows struct{ *conns }

// ticketRows are the rows of dblock_ticket: calls that wait for leases in their order.
type ticketRows struct{ *leaseRows }

func newLeaseDriver(c *conns, watch time.Duration) *leaseDriver {
	leases := &leaseRows{c}
	return &leaseDriver{
		conns: c, leases: leases, readers: &readerRows{leases}, permits: &permitRows{c}, tickets: &ticketRows{leases}, watch: watch,
	}
}

var (
	_ lease.Driver    = (*leaseDriver)(nil)
	_ lease.Inspector = (*leaseDriver)(nil)
)

// backend returns what a LeaseLocker needs. A statement may wait for a gap when its client has
// given up.
func (d *leaseDriver) backend() lease.Backend {
	traits := lease.Traits{Classify: d.Classify, MaxStatementBytes: d.db.LongestStatement(), LockWait: 2 * boundWait}
	if !d.db.MariaDB {
		traits.LockWait = d.db.LockWait
	}
	return lease.Backend{Member: d, Driver: d, Inspector: d, Traits: traits, Close: func() {
		d.kept.Close()
		d.Close()
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
	e := newLeaseDriver(&conns{Members: mysql.NewMembers(db, false), db: db, kept: mysql.NewKept(db.Pool, set, setBack)}, watch)
	if e.notDurable, err = e.undurable(ctx); err != nil {
		return nil, lease.Backend{}, mysql.Unavailable(err)
	}
	return e, e.backend(), nil
}
