package pginventory

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/internal/engine"
	"github.com/dblock-go/dblock/inventory/internal/link"
)

// failing is an engine whose statements fail with err.
type failing struct {
	*database
	err error
}

func (f failing) Ways() engine.Ways {
	return engine.Ways{Direct: func(context.Context, engine.Row) (engine.Verdict, error) { return 0, f.err }}
}

func (failing) Connections() int { return 0 }

func (f failing) Transact(context.Context, engine.Ask, func(engine.Books) engine.Plan) error {
	return f.err
}

func (f failing) AwaitKeys(context.Context, []engine.Row) error { return f.err }

func (f failing) Look(context.Context, engine.Ask) (engine.Books, error) {
	return engine.Books{}, f.err
}

func (f failing) Adjust(context.Context, func(engine.AdjustTx) (bool, error)) error { return f.err }

func (f failing) Adjustment(context.Context, string) (engine.Adjustment, bool, error) {
	return engine.Adjustment{}, false, f.err
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
				s, failed := link.NewStore(inventory.Options{Timeout: 50 * time.Millisecond}, func() (engine.Engine, error) {
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
