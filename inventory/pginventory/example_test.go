package pginventory_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
	"github.com/dblock-go/dblock/migrations"
)

func Example() {
	ctx := context.Background()
	url, done := testdb.ExampleDSN(devdb.Postgres) // yours: postgres://app@db.example/shop
	defer done()

	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	if _, err := migrations.Up(ctx, pool, migrations.Options{}); err != nil { // or: dblock migrate up
		fmt.Println(err)
		return
	}
	store, err := pginventory.New(ctx, pool, inventory.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close(ctx) }()

	delivery := inventory.Adjustment{ID: "delivery-4711", SKU: "headphones", Delta: 2}
	if _, err := store.Restock(ctx, delivery); err != nil {
		fmt.Println(err)
		return
	}
	for _, buyer := range []string{"ann", "bob", "cyd", "ann"} {
		order := inventory.Request{Key: "order-of-" + buyer, SKU: "headphones", Buyer: buyer, Qty: 1}
		r, err := store.Reserve(ctx, order)
		switch {
		case errors.Is(err, inventory.ErrSoldOut):
			fmt.Println(buyer, "comes too late")
		case err != nil: // dblock.ErrOutcomeUnknown among others: send the same order again
			fmt.Println(err)
		case r.Replayed:
			fmt.Println(buyer, "has one already")
		default:
			fmt.Println(buyer, "has one")
		}
	}
	// Output:
	// ann has one
	// bob has one
	// cyd comes too late
	// ann has one already
}
