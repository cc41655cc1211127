// Package pgqueue is the driver of package queue for Postgres 14 or later, with pgx. Package queue
// has the contract and the guarantees; this package has New, EnqueueTx and HandleTx.
//
// The tables come from package migrations (`dblock migrate up`), the grants that a service needs from docs/grants.md. Statements run
// in READ COMMITTED, whatever the database's default. A job is as durable as the connection's synchronous_commit says.
package pgqueue

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/internal/engine"
	"github.com/dblock-go/dblock/queue/internal/link"
)

// New makes a Queue in the database of pool, which stays its owner's and is not used for anything but to make others like it, and for
// the transactions of HandleTx: statements go through up to 10 connections of a pool of its own, with the settings of pool, and heartbeats
// through one more, so that nothing keeps them waiting. A process that works has up to 5 more, of a pglock.LeaseLocker: with it one process at
// a time is elected to look after the queues; and one on which it listens, unless Options.PollOnly is set. It asks the server for its
// version and for that of the tables.
//
// Connections of its own call BeforeConnect and AfterConnect of pool, not PrepareConn, BeforeAcquire and AfterRelease. Their
// contexts, which a tracer sees too, have no values of the caller's.
//
// Errors: dblock.ErrInvalid, dblock.ErrSchema, dblock.ErrServerTooOld, dblock.ErrUnavailable;
// dblock.ErrUnsupported for a client_encoding other than UTF8, and for a search_path that names
// pg_catalog after another schema.
func New(ctx context.Context, pool *pgxpool.Pool, o queue.Options) (*queue.Queue, error) {
	if err := postgres.CheckHost(pool, "Options.Schema", o.Schema); err != nil {
		return nil, err
	}
	return link.NewQueue(o, func() (engine.Engine, error) { return open(ctx, pool, o.Schema) })
}

// database is the Postgres side of a Queue.
type database struct {
	*postgres.Schema
	postgres.Members

	host        *pgxpool.Pool
	pool, heart *postgres.Pool // its own
	db          pgdb.DBTX      // pool, with the tables in their schema
	chosen      string         // the schema as the host gave it, perhaps none
	channel     string         // of what processes tell each other
	sender      string         // this one, among them
	q           pgdb.Queries
}

var _ engine.Engine = (*database)(nil)

// Exhausted looks at its own pool, not at the host's.
func (d *database) Exhausted() bool {
	s := d.pool.Stat()
	return s.AcquiredConns() >= s.MaxConns()
}

func (d *database) Close() {
	d.heart.Close()
	d.pool.Close()
}
