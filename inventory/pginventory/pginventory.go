// Package pginventory is the driver of package inventory for Postgres 14 or later, with pgx.
// Package inventory has the contract and the guarantees; this package has New, WithHook, ReserveTx
// and ReserveAllTx.
//
//	store, err := pginventory.New(ctx, pool, inventory.Options{}) // one for each process
//	_, err = store.Restock(ctx, inventory.Adjustment{ID: "delivery-4711", SKU: "headphones", Delta: 300})
//	sold, err := store.Reserve(ctx, inventory.Request{Key: orderKey, SKU: "headphones", Qty: 1})
//
// The tables come from package migrations (`dblock migrate up`), the grants that a service needs
// from docs/grants.md. Transactions are READ COMMITTED. Sales
// of one SKU are single statements, at the session's default: one above READ COMMITTED makes them
// slower. A sale
// is as durable as the connection's synchronous_commit says. An answer from what is recorded waits
// for synchronous standbys as a sale does.
package pginventory

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/internal/driver"
	"github.com/dblock-go/dblock/inventory/internal/link"
)

// New makes a Store that sells from the database of pool, which stays its owner's. It asks the
// server for its version and for that of the tables.
//
// Errors: dblock.ErrSchema, dblock.ErrServerTooOld, dblock.ErrUnavailable, dblock.ErrInvalid;
// dblock.ErrUnsupported for a client_encoding other than UTF8, and for a search_path that names
// pg_catalog after another schema.
func New(ctx context.Context, pool *pgxpool.Pool, o inventory.Options, more ...Option) (*inventory.Store, error) {
	if err := postgres.CheckHost(pool, "Options.Schema", o.Schema); err != nil {
		return nil, err
	}
	return link.Inventory.NewStore(o, func() (driver.Driver, error) { return open(ctx, pool, o.Schema, more) })
}

func open(ctx context.Context, pool *pgxpool.Pool, schema string, more []Option) (d *database, err error) {
	d = &database{pool: pool, chosen: schema}
	for _, option := range more {
		if option == nil {
			return nil, &dblock.InvalidError{Field: "options", Reason: "one of them is nil"}
		}
		option(d)
	}
	d.Schema, err = postgres.RequireSchema(ctx, pool, schema)
	return d, err
}

// database is the Postgres side of a Store.
type database struct {
	*postgres.Schema

	pool   *pgxpool.Pool
	chosen string // the schema as the host gave it, perhaps none
	q      pgdb.Queries
	hook   Hook // nil: none
}

var _ driver.Driver = (*database)(nil)

// Caps asks the pool what it is limited to.
func (d *database) Caps() driver.Caps {
	return driver.Caps{Batches: true, Hooked: d.hook != nil, Connections: int(d.pool.Config().MaxConns)}
}
