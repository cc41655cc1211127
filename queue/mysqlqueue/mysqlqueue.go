// Package mysqlqueue is the driver of package queue for MySQL 8.0.16 or later and MariaDB 10.6 or
// later, with database/sql. Package queue has the contract and the guarantees; this package has
// New, EnqueueTx and HandleTx.
//
// The tables come from package migrations (`dblock migrate up`), the grants that a service needs from docs/grants.md. Transactions run
// in READ COMMITTED, which wants binlog_format ROW or MIXED. No option of the DSN matters: not parseTime, loc, clientFoundRows,
// interpolateParams or multiStatements, nor sql_mode and time_zone. New refuses autocommit=0, READ UNCOMMITTED, a
// sql_select_limit, sql_safe_updates, a timestamp and a completion_type other than NO_CHAIN. The host returns connections to the pool
// without an open transaction, without a timestamp and with autocommit on: what is written on another connection is not committed.
// If the host sends USE, the options name the Schema.
// A job is as durable as the server's innodb_flush_log_at_trx_commit and sync_binlog say.
package mysqlqueue

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/internal/engine"
	"github.com/dblock-go/dblock/queue/internal/link"
)

// New makes a Queue in the database of db, which stays its owner's. It uses one connection of the pool for heartbeats, for as long as
// it is open, and a few others now and then: at most those that Enqueue and Work have under way (six, and WorkerOptions.Syncs and
// two more for each call, and one for each handler of HandleTx that runs). A process that works has those of a mysqllock.LeaseLocker, too: with it one process at a time is elected to look
// after the queues; if the pool has no more than 7, each process looks after them. It asks the server for its version and for that of the tables.
//
// Errors: dblock.ErrInvalid, dblock.ErrSchema, dblock.ErrServerTooOld, dblock.ErrUnavailable.
func New(ctx context.Context, db *sql.DB, o queue.Options) (*queue.Queue, error) {
	if db == nil {
		return nil, &dblock.InvalidError{Field: "db", Reason: "it is nil"}
	}
	if err := schema.CheckMySQLName(o.Schema); err != nil {
		return nil, &dblock.InvalidError{Field: "Options.Schema", Reason: err.Error()}
	}
	return link.NewQueue(o, func() (engine.Engine, error) { return open(ctx, db, o.Schema) })
}

func open(ctx context.Context, pool *sql.DB, schema string) (*database, error) {
	db, err := mysql.Open(ctx, pool, schema)
	if err != nil {
		return nil, err
	}
	return &database{Members: mysql.NewMembers(db, true), db: db}, nil
}

// database is the MySQL side of a Queue.
type database struct {
	*mysql.Members
	db *mysql.Database
	q  mysqldb.Queries
}

var _ engine.Engine = (*database)(nil)

// on returns what the generated queries run on. The server bounds for how long they wait for tables and, on MariaDB, for rows.
func (d *database) on(conn mysql.Conn) mysqldb.DBTX {
	return mysql.Briefly(d.db.On(conn))
}

// Exhausted looks at the host's pool.
func (d *database) Exhausted() bool { return d.db.Exhausted() }

func blobs(ids []engine.ID) [][]byte {
	all := make([][]byte, len(ids))
	for i := range ids {
		all[i] = ids[i][:]
	}
	return all
}

// idOf reads an id. One of another length, which no table of dblock's can hold, matches nothing.
func idOf(b []byte) (id engine.ID) {
	copy(id[:], b)
	return id
}
