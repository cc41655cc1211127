package pginventory_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/internal/driver"
	"github.com/dblock-go/dblock/inventory/internal/link"
	"github.com/dblock-go/dblock/inventory/pginventory"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/pglock"
)

// TestForeignTx has a transaction of another driver's, and none at all.
func TestForeignTx(t *testing.T) {
	t.Parallel()
	dsn := testdb.DSN(t, devdb.Postgres)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := migrations.Up(t.Context(), pool, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	store, err := pginventory.New(t.Context(), pool, inventory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := inventory.Request{Key: "k", SKU: "sale", Qty: 1}
	if _, err := link.Inventory.ReserveIn(t.Context(), store, driver.CallerTx{Tx: "of another driver"}, r); !errors.Is(err, dblock.ErrInvalid) {
		t.Error(err)
	}
	if _, err := pginventory.ReserveTx(t.Context(), store, nil, r); !errors.Is(err, dblock.ErrInvalid) {
		t.Error(err)
	}
}

// TestClosedTx has a transaction of database/sql whose connection was terminated.
func TestClosedTx(t *testing.T) {
	t.Parallel()
	pool := testdb.MigratedPostgres(t)
	store, err := pginventory.New(t.Context(), pool, inventory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())"); err == nil {
		t.Fatal("the session goes on")
	}
	_, err = pginventory.ReserveTx(t.Context(), store, pglock.SQLTx(tx), inventory.Request{Key: "k", SKU: "sale", Qty: 1})
	if !errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrUnsupported) {
		t.Error(err)
	}
	_ = tx.Rollback()
}
