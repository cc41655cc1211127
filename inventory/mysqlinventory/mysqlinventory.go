// Package mysqlinventory is the driver of package inventory for MySQL 8.0.16 or later and MariaDB
// 10.6 or later, with database/sql. Package inventory has the contract and the guarantees; this
// package has New, WithHook, ReserveTx and ReserveAllTx.
//
//	store, err := mysqlinventory.New(ctx, db, inventory.Options{}) // one for each process
//	_, err = store.Restock(ctx, inventory.Adjustment{ID: "delivery-4711", SKU: "headphones", Delta: 300})
//	sold, err := store.Reserve(ctx, inventory.Request{Key: orderKey, SKU: "headphones", Qty: 1})
//
// The tables come from package migrations (`dblock migrate up`), the grants that a service needs
// from docs/grants.md. Transactions run in READ COMMITTED, which wants binlog_format ROW or MIXED.
// No option of the DSN matters: not parseTime, loc, clientFoundRows, interpolateParams or
// multiStatements, nor sql_mode and time_zone. Only a maxAllowedPacket below the server's
// max_allowed_packet does: the driver then refuses statements that the server would take, so that a
// large cart is ErrRejected and large batches are sent one by one. 0 has the driver ask the server.
// New refuses autocommit=0, READ UNCOMMITTED, a sql_select_limit, sql_safe_updates, a timestamp and
// a completion_type other than NO_CHAIN. Return connections to the pool without an open
// transaction, without a timestamp and with autocommit on: what dblock writes on others is not
// committed. If your code sends USE, set Options.Schema. A sale is as durable as the server's
// innodb_flush_log_at_trx_commit and sync_binlog say. InnoDB shows a commit to others before it is
// on the disk: if the server crashes in that moment, a reservation that was answered as Replayed
// may be lost.
package mysqlinventory

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/internal/driver"
	"github.com/dblock-go/dblock/inventory/internal/link"
)

// New makes a Store that sells from the database of db, which stays its owner's. It asks the
// server for its version and for that of the tables.
//
// Errors: dblock.ErrSchema, dblock.ErrServerTooOld, dblock.ErrUnavailable, dblock.ErrInvalid, and
// dblock.ErrUnsupported for settings of the server that it refuses.
func New(ctx context.Context, db *sql.DB, o inventory.Options, more ...Option) (*inventory.Store, error) {
	if db == nil {
		return nil, &dblock.InvalidError{Field: "db", Reason: "it is nil"}
	}
	if err := schema.CheckMySQLName(o.Schema); err != nil {
		return nil, &dblock.InvalidError{Field: "Options.Schema", Reason: err.Error()}
	}
	return link.Inventory.NewStore(o, func() (driver.Driver, error) { return open(ctx, db, o.Schema, more) })
}

func open(ctx context.Context, pool *sql.DB, schema string, more []Option) (d *database, err error) {
	d = new(database)
	for _, option := range more {
		if option == nil {
			return nil, &dblock.InvalidError{Field: "options", Reason: "one of them is nil"}
		}
		option(d)
	}
	d.db, err = mysql.Open(ctx, pool, schema)
	return d, err
}

// database is the MySQL side of a Store.
type database struct {
	db   *mysql.Database
	q    mysqldb.Queries
	hook Hook // nil: none
}

var _ driver.Driver = (*database)(nil)

// Caps asks the pool what it is limited to.
func (d *database) Caps() driver.Caps {
	return driver.Caps{Hooked: d.hook != nil, HooksWaitLong: !d.db.MariaDB, Connections: d.db.Stats().MaxOpenConnections}
}
