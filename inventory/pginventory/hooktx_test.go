package pginventory_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
)

// TestAHookTxEndsWithItsHook: a hook keeps its HookTx, and uses it later: that is an error. One
// that leaves a statement under way has its order refused.
func TestAHookTxEndsWithItsHook(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	var kept pginventory.HookTx
	left := make(chan error, 1)
	hook := func(ctx context.Context, tx pginventory.HookTx, granted []inventory.Reservation) error {
		kept = tx
		if granted[0].Key != "leaves" {
			return nil
		}
		begun := make(chan struct{})
		go func() {
			close(begun)
			_, err := tx.Exec(ctx, "SELECT pg_sleep(3600)")
			left <- err
		}()
		<-begun
		return nil
	}
	store, err := pginventory.New(ctx, testdb.MigratedPostgres(t), inventory.Options{}, pginventory.WithHook(hook))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Restock(ctx, inventory.Adjustment{ID: "a", SKU: "sale", Delta: 100}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Reserve(ctx, inventory.Request{Key: "stays", SKU: "sale", Qty: 1}); err != nil {
		t.Fatal(err)
	}
	for what, use := range map[string]func() error{
		"Exec":      func() error { _, err := kept.Exec(ctx, "SELECT 1"); return err },
		"Query":     func() error { rows, err := kept.Query(ctx, "SELECT 1"); rows.Close(); return err },
		"QueryRow":  func() error { return kept.QueryRow(ctx, "SELECT 1").Scan(new(int)) },
		"SendBatch": func() error { _, err := kept.SendBatch(ctx, new(pgx.Batch)).Exec(); return err },
		"CopyFrom": func() error {
			_, err := kept.CopyFrom(ctx, pgx.Identifier{"x"}, []string{"y"}, pgx.CopyFromRows(nil))
			return err
		},
	} {
		if err := use(); err == nil {
			t.Errorf("%s of a hook that has returned is no error", what)
		}
	}
	_, err = store.Reserve(ctx, inventory.Request{Key: "leaves", SKU: "sale", Qty: 1})
	if late := <-left; late == nil {
		t.Error("a statement that was left lasts")
	} else if err != nil && !errors.Is(err, inventory.ErrRejected) {
		t.Errorf("the order of a hook that left a statement: %v", err)
	}
	if _, err := store.Reserve(ctx, inventory.Request{Key: "after it", SKU: "sale", Qty: 1}); err != nil {
		t.Error(err)
	}
	if err := store.Close(ctx); err != nil {
		t.Error(err)
	}
}
