package mysqlinventory_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/internal/driver"
	"github.com/dblock-go/dblock/inventory/internal/link"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
	"github.com/dblock-go/dblock/migrations"
)

// TestForeignTx has a transaction of another driver's, and none at all.
func TestForeignTx(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("mysql", testdb.DSN(t, family()[0]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := migrations.Up(t.Context(), db, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	store, err := mysqlinventory.New(t.Context(), db, inventory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := inventory.Request{Key: "k", SKU: "sale", Qty: 1}
	if _, err := link.Inventory.ReserveIn(t.Context(), store, driver.CallerTx{Tx: "of another driver"}, r); !errors.Is(err, dblock.ErrInvalid) {
		t.Error(err)
	}
	if _, err := mysqlinventory.ReserveTx(t.Context(), store, nil, r); !errors.Is(err, dblock.ErrInvalid) {
		t.Error(err)
	}
}
