// Package mysqlqueue is the driver of package queue for MySQL 8.0.16 or later and MariaDB 10.6 or
// later, with database/sql. Package queue has the contract and the guarantees; this package has
// New, EnqueueTx and HandleTx.
//
//	jobs, err := mysqlqueue.New(ctx, db, queue.Options{})         // one for each process
//	err = queue.Handle(jobs, "welcome", welcome)                // runs the jobs of this kind
//	id, err := mysqlqueue.EnqueueTx(ctx, jobs, tx, queue.Task{Kind: "welcome", Args: args}) // if tx commits
//	err = jobs.Work(ctx, queue.WorkerOptions{})                 // until ctx ends
//
// The tables come from package migrations (`dblock migrate up`), the grants that a service needs
// from docs/grants.md. Transactions run in READ COMMITTED, which wants binlog_format ROW or MIXED.
// No option of the DSN matters: not parseTime, loc, clientFoundRows, interpolateParams or
// multiStatements, nor sql_mode and time_zone. New refuses autocommit=0, READ UNCOMMITTED, a
// sql_select_limit, sql_safe_updates, a timestamp and a completion_type other than NO_CHAIN. Return
// connections to the pool without an open transaction, without a timestamp and with autocommit on:
// what dblock writes on others is not committed. If your code sends USE, set Options.Schema. A job
// is as durable as the server's innodb_flush_log_at_trx_commit and sync_binlog say.
package mysqlqueue

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/internal/driver"
	"github.com/dblock-go/dblock/queue/internal/link"
)

// New makes a Queue in the database of db, which stays its owner's. It uses one connection of the
// pool for heartbeats, for as long as it is open, and a few others now and then. Enqueue and Work
// have at most thirteen under way, and WorkerOptions.Syncs and two more for each call of Work, and
// one for each handler of HandleTx that runs. A process that works has those of a
// mysqllock.LeaseLocker, too. With it one process at a time is elected to maintain the queues. If
// the pool has no more than 7, each process maintains them. It asks the server for its version and
// for that of the tables.
//
// Errors: dblock.ErrInvalid, dblock.ErrSchema, dblock.ErrServerTooOld, dblock.ErrUnavailable.
func New(ctx context.Context, db *sql.DB, o queue.Options) (*queue.Queue, error) {
	if db == nil {
		return nil, &dblock.InvalidError{Field: "db", Reason: "it is nil"}
	}
	if err := schema.CheckMySQLName(o.Schema); err != nil {
		return nil, &dblock.InvalidError{Field: "Options.Schema", Reason: err.Error()}
	}
	return link.NewQueue(o, func() (driver.Driver, error) { return open(ctx, db, o.Schema) })
}

func open(ctx context.Context, pool *sql.DB, schema string) (*database, error) {
	db, err := mysql.Open(ctx, pool, schema)
	if err != nil {
		return nil, err
	}
	d := &database{db: db}
	d.members = members{mysql.NewMembers(db, true), d}
	return d, nil
}

// database is the MySQL side of a Queue.
type database struct {
	members members
	db      *mysql.Database
	q       mysqldb.Queries
}

var _ driver.Driver = (*database)(nil)

func (d *database) Members() driver.Members { return d.members }

func (d *database) Maintenance() driver.Maintenance { return maintenance{d} }

func (d *database) Admin() driver.Admin { return admin{d} }

func (d *database) Notifier() driver.Notifier { return notifier{} }

func (*database) Classify(err error) sqlerr.Class { return mysql.ClassifyOwn(err) }

func (*database) IsLocked(err error) bool { return mysql.IsLocked(err) }

// Exhausted looks at the host's pool.
func (d *database) Exhausted() bool { return d.db.Exhausted() }

// maxRowWaits bounds RowWaits: each may wait for a second for the row of one group.
const maxRowWaits = 8

// RowWaits leaves most of the host's pool to others.
func (d *database) RowWaits() int {
	most := d.db.Stats().MaxOpenConnections
	if most == 0 {
		return maxRowWaits
	}
	return min(max(most/4, 1), maxRowWaits)
}

// leastConns is how many connections a pool has, at least, that leases may have some of: two for
// good, and others now and then.
const leastConns = 8

// Leases are mysqllock's, on the pool.
func (d *database) Leases(ctx context.Context, ttl time.Duration, label string) (dblock.Locker, error) {
	if n := d.db.Stats().MaxOpenConnections; n > 0 && n < leastConns {
		return nil, fmt.Errorf("%w: the pool has no more than %d connections; with %d one process at a time maintains the queues",
			dblock.ErrUnsupported, n, leastConns)
	}
	return mysqllock.NewLeaseLocker(ctx, d.db.DB, mysqllock.LeaseOptions{TTL: ttl, Label: label, Schema: d.db.Schema})
}

func (d *database) Close() { d.members.Close() }

// on returns what the generated queries run on. The server bounds for how long they wait for tables
// and, on MariaDB, for rows.
func (d *database) on(conn mysql.Conn) mysqldb.DBTX { return mysql.Briefly(d.db.On(conn)) }

// inTx runs fn in a READ COMMITTED transaction of its own, and commits it if fn says so. An error
// of the commit itself leaves it open whether it took place. A statement waits for a lock for a
// second at most.
func (d *database) inTx(ctx context.Context, fn func(mysqldb.DBTX) (commit bool, err error)) error {
	return d.db.In(ctx, func(conn *sql.Conn) (bool, error) { return fn(d.on(conn)) })
}

// written is inTx for one statement, which waits for locks while ctx lives.
func (d *database) written(ctx context.Context, fn func(mysqldb.DBTX) error) error {
	return patiently(ctx, func() error {
		return d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) { return true, fn(on) })
	})
}

// patiently runs a transaction again that waited for a lock for a second, while ctx lives.
func patiently(ctx context.Context, run func() error) error {
	for {
		if err := run(); !mysql.IsLocked(err) || ctx.Err() != nil {
			return err
		}
	}
}

// members is driver.Members.
type members struct {
	*mysql.Members
	d *database
}

// Evict is two statements, each in a snapshot of its own.
func (m members) Evict(ctx context.Context, of member.ID) (gone bool, err error) {
	if err := m.d.written(ctx, func(on mysqldb.DBTX) error { return m.d.q.Evict(ctx, on, of[:]) }); err != nil {
		return false, err
	}
	stands, err := m.Exists(ctx, of)
	return !stands, err
}

// Exists reads the row.
func (m members) Exists(ctx context.Context, of member.ID) (bool, error) {
	n, err := m.d.q.IsMember(ctx, m.d.on(m.d.db), of[:])
	return n > 0, err
}

func blobs(ids []driver.ID) [][]byte {
	all := make([][]byte, len(ids))
	for i := range ids {
		all[i] = ids[i][:]
	}
	return all
}

// idOf reads an id. One of another length, which no table of dblock's can hold, matches nothing.
func idOf(b []byte) (id driver.ID) {
	copy(id[:], b)
	return id
}
