package pglock

import (
	"context"
	"strconv"
	"time"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/postgres"
)

// leaseDriver executes the statements of lease locks on Postgres.
type leaseDriver struct {
	postgres.Members

	pool       *postgres.Pool // its own
	heartbeats *postgres.Pool // of one connection: a heartbeat never waits behind other work
	schema     *postgres.Schema
	db         pgdb.DBTX // pool, with the tables in schema

	gets, sweeps turns

	notDurable string // the setting for which commits don't survive a crash; empty: they do

	quiet quiet

	q pgdb.Queries
}

var (
	_ lease.Driver    = (*leaseDriver)(nil)
	_ lease.Inspector = (*leaseDriver)(nil)
)

// backend returns what a LeaseLocker needs.
func (d *leaseDriver) backend() lease.Backend {
	return lease.Backend{
		Member: d, Driver: d, Inspector: d, Close: d.close,
		Traits: lease.Traits{Classify: d.Classify, LockWait: longestWait},
	}
}

// lockTimeout lets the server give up on a lock before we give up on the server: the error then
// says which of the two it was. A batch passes over rows that are locked; a statement that waits,
// for example for a row that another transaction inserts, delays others of this process.
func lockTimeout(ctx context.Context) string {
	wait := longestWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/3)
	}
	return strconv.FormatInt(max(1, wait.Milliseconds()), 10)
}

const longestWait = time.Second

// batchTimeout is lockTimeout for a batch, which waits for a row that another transaction is
// making, as all of its asks do. It gives up soon, and is split: a single ask waits for longer.
func batchTimeout(ctx context.Context, size int) string {
	if size == 1 {
		return lockTimeout(ctx)
	}
	return batchWait
}

const batchWait = "50" // milliseconds
