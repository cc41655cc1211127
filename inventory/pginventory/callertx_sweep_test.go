package pginventory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
)

// TestCallersTxsSweepNotCrosswise has two buyers with expired holds on the same two SKUs order in a
// transaction each. A trigger keeps both in their first sweep until the other waits, too. No
// transaction may meet a deadlock, as its one order is all that it writes.
func TestCallersTxsSweepNotCrosswise(t *testing.T) {
	t.Parallel()
	cart := func(buyer string) inventory.Cart {
		return inventory.Cart{Key: buyer, Buyer: buyer, Lines: []inventory.Line{{SKU: "a", Qty: 1, Limit: 1}, {SKU: "b", Qty: 1, Limit: 1}}}
	}
	for name, reserve := range map[string]func(*inventory.Store, pgx.Tx, string, string) error{
		"an SKU each": func(s *inventory.Store, tx pgx.Tx, buyer, sku string) error {
			_, err := pginventory.ReserveTx(t.Context(), s, tx, inventory.Request{Key: buyer, Buyer: buyer, SKU: sku, Qty: 1, Limit: 1})
			return err
		},
		"both as carts": func(s *inventory.Store, tx pgx.Tx, buyer, _ string) error {
			_, err := pginventory.ReserveAllTx(t.Context(), s, tx, cart(buyer))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, stores := openProcesses(t, nil)
			exec := func(statement string) {
				if _, err := pool.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			for _, sku := range []string{"a", "b"} {
				if _, err := stores[0].Restock(t.Context(), inventory.Adjustment{ID: sku, SKU: sku, Delta: 100}); err != nil {
					t.Fatal(err)
				}
				for _, buyer := range []string{"ann", "bob"} {
					r := inventory.Request{Key: buyer + " " + sku, Buyer: buyer, SKU: sku, Qty: 1, Limit: 1, Hold: time.Hour}
					if _, err := stores[0].Reserve(t.Context(), r); err != nil {
						t.Fatal(err)
					}
				}
			}
			// each buyer's hold on the SKU of the other's order expires first
			exec(`UPDATE dblock_reservation SET expires_at = clock_timestamp() - interval '1 minute' * (1 + (reservation_key IN ('ann b', 'bob a'))::int)`)
			exec(`CREATE FUNCTION meet() RETURNS trigger LANGUAGE plpgsql AS
				$$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END $$`)
			exec(`CREATE TRIGGER meet BEFORE UPDATE ON dblock_reservation FOR EACH ROW EXECUTE FUNCTION meet()`)
			gate, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer gate.Rollback(t.Context())
			if _, err := gate.Exec(t.Context(), "SELECT pg_advisory_xact_lock(1)"); err != nil {
				t.Fatal(err)
			}
			ends := make(chan error, 2)
			for buyer, sku := range map[string]string{"ann": "a", "bob": "b"} {
				go func() {
					ends <- pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return reserve(stores[0], tx, buyer, sku) })
				}()
			}
			for waiting := 0; waiting < 2; {
				err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_catalog.pg_stat_activity
					WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := gate.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := <-ends; err != nil && !errors.Is(err, dblock.ErrBusy) { // what the other has locked is not swept
					t.Error(err)
				}
			}
		})
	}
}
