package pginventory_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	seam "github.com/dblock-go/dblock/inventory/internal/engine"
	"github.com/dblock-go/dblock/inventory/pginventory"
	"github.com/dblock-go/dblock/migrations"
)

// TestForeignTx has a transaction of another engine's, and none at all.
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
	if _, err := store.ReserveIn(t.Context(), seam.CallerTx{Tx: "of another engine"}, r); !errors.Is(err, inventory.ErrInvalid) {
		t.Error(err)
	}
	if _, err := pginventory.ReserveTx(t.Context(), store, nil, r); !errors.Is(err, inventory.ErrInvalid) {
		t.Error(err)
	}
}
