// Package pgqueue is the driver of package queue for Postgres 14 or later, with pgx. Package queue
// has the contract and the guarantees; this package has New, EnqueueTx and HandleTx.
//
//	jobs, err := pgqueue.New(ctx, pool, queue.Options{})         // one for each process
//	err = queue.Handle(jobs, "welcome", welcome)                // runs the jobs of this kind
//	id, err := pgqueue.EnqueueTx(ctx, jobs, tx, queue.Task{Kind: "welcome", Args: args}) // if tx commits
//	err = jobs.Work(ctx, queue.WorkerOptions{})                 // until ctx ends
//
// The tables come from package migrations (`dblock migrate up`), the grants that a service needs
// from docs/grants.md. Statements run in READ COMMITTED, whatever the database's default. A job is
// as durable as the connection's synchronous_commit says.
package pgqueue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/pglock"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/internal/driver"
	"github.com/dblock-go/dblock/queue/internal/link"
)

// New makes a Queue in the database of pool. Pool stays its owner's, and is used only to make
// others like it, and for the transactions of HandleTx. Statements go through up to 10 connections
// of a pool of its own, with the settings of pool. Heartbeats go through one more, so that nothing
// keeps them waiting. A process that works has up to 5 more, of a pglock.LeaseLocker: with it one
// process at a time is elected to maintain the queues. It has one more on which it listens, unless
// Options.PollOnly is set. It asks the server for its version and for that of the tables.
//
// Connections of its own call BeforeConnect and AfterConnect of pool, not PrepareConn,
// BeforeAcquire and AfterRelease. Their contexts, which a tracer sees too, have no values of the
// caller's.
//
// Errors: dblock.ErrInvalid, dblock.ErrSchema, dblock.ErrServerTooOld, dblock.ErrUnavailable;
// dblock.ErrUnsupported for a client_encoding other than UTF8, and for a search_path that names
// pg_catalog after another schema.
func New(ctx context.Context, pool *pgxpool.Pool, o queue.Options) (*queue.Queue, error) {
	if err := postgres.CheckHost(pool, "Options.Schema", o.Schema); err != nil {
		return nil, err
	}
	return link.NewQueue(o, func() (driver.Driver, error) { return open(ctx, pool, o.Schema) })
}

// ownConns is how many connections a Queue uses, without that of the heartbeats.
const ownConns = 10

// sessions are parameters besides those of postgres. A bitmap would read all ready jobs of a queue
// before the first is claimed.
var sessions = map[string]string{"enable_bitmapscan": "off"}

// open makes a driver with pools of its own.
func open(ctx context.Context, host *pgxpool.Pool, schemaName string) (*database, error) {
	schema, pools, err := postgres.Open(ctx, host, schemaName, sessions, ownConns, 1)
	if err != nil {
		return nil, err
	}
	pool, heartbeats := pools[0], pools[1]
	d := &database{
		Schema: schema, members: postgres.NewMembers(schema, heartbeats, pool),
		host: host, pool: pool, heartbeats: heartbeats, db: schema.On(pool), chosen: schemaName, sender: member.NewID().String(),
	}
	if err := (notifier{d}).findChannel(ctx); err != nil {
		d.Close()
		return nil, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	return d, nil
}

// database is the Postgres side of a Queue.
type database struct {
	*postgres.Schema
	members postgres.Members

	host             *pgxpool.Pool
	pool, heartbeats *postgres.Pool // its own
	db               pgdb.DBTX      // pool, with the tables in their schema
	chosen           string         // the schema as the host gave it, perhaps none
	channel          string         // of notifications
	sender           string         // this one, among them
	q                pgdb.Queries
}

var _ driver.Driver = (*database)(nil)

func (d *database) Members() driver.Members { return &d.members }

func (d *database) Maintenance() driver.Maintenance { return maintenance{d} }

func (d *database) Admin() driver.Admin { return admin{d} }

func (d *database) Notifier() driver.Notifier { return notifier{d} }

func (*database) Classify(err error) sqlerr.Class { return postgres.ClassifyOwn(err) }

func (*database) IsLocked(err error) bool { return postgres.IsLocked(err) }

// Exhausted looks at its own pool, not at the host's.
func (d *database) Exhausted() bool {
	s := d.pool.Stat()
	return s.AcquiredConns() >= s.MaxConns()
}

// RowWaits is 0: the server counts milliseconds.
func (d *database) RowWaits() int { return 0 }

// Leases are pglock's, with connections of their own. They share the heartbeat of the host's leases
// with the same options.
func (d *database) Leases(ctx context.Context, ttl time.Duration, label string) (dblock.Locker, error) {
	return pglock.NewLeaseLocker(ctx, d.host, pglock.LeaseOptions{TTL: ttl, Label: label, Schema: d.chosen})
}

func (d *database) Close() {
	d.heartbeats.Close()
	d.pool.Close()
}

// inTx is postgres.InTx on a connection of dblock's own.
func (d *database) inTx(ctx context.Context, wait time.Duration, fn func(pgdb.DBTX) (commit bool, err error)) error {
	return postgres.InTx(ctx, d.pool, wait, func(tx pgx.Tx) (bool, error) { return fn(d.On(tx)) })
}

// idsOf are ids as the server has them.
func idsOf(of []pgtype.UUID) []driver.ID {
	all := make([]driver.ID, len(of))
	for i, u := range of {
		all[i] = u.Bytes
	}
	return all
}
