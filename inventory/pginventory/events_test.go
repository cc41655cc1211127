package pginventory

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/internal/driver"
	"github.com/dblock-go/dblock/inventory/internal/link"
)

// failing is a driver whose statements fail with err.
type failing struct {
	*database
	err error
}

func (failing) Caps() driver.Caps { return driver.Caps{Batches: true} }

func (f failing) Sell(context.Context, driver.Orders) (driver.Sale, error) {
	return driver.Sale{}, f.err
}

func (f failing) Transact(context.Context, driver.ReadRequest, func(driver.Books) driver.Plan) error {
	return f.err
}

func (f failing) AwaitKeys(context.Context, []driver.Row) error { return f.err }

func (f failing) Read(context.Context, driver.ReadRequest) (driver.Books, error) {
	return driver.Books{}, f.err
}

func (f failing) Adjust(context.Context, func(driver.AdjustTx) (bool, error)) error { return f.err }

func (f failing) Adjustment(context.Context, string) (driver.Adjustment, bool, error) {
	return driver.Adjustment{}, false, f.err
}

// TestPublicErrors: what a server reports has the same public error as in all other packages.
func TestPublicErrors(t *testing.T) {
	t.Parallel()
	for what, call := range map[string]func(*inventory.Store) error{
		"order": func(s *inventory.Store) error {
			_, err := s.Reserve(t.Context(), inventory.Request{Key: "key", SKU: "sku", Buyer: "ann", Qty: 1})
			return err
		},
		"adjustment": func(s *inventory.Store) error {
			_, err := s.Restock(t.Context(), inventory.Adjustment{ID: "id", SKU: "sku", Delta: 1})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			answers.SameEverywhere(t, devdb.Postgres, func(err error) error {
				s, failed := link.Inventory.NewStore(inventory.Options{Timeout: 50 * time.Millisecond}, func() (driver.Driver, error) {
					return failing{new(database), err}, nil
				})
				if failed != nil {
					t.Fatal(failed)
				}
				return call(s)
			})
		})
	}
}
