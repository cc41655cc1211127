package pginventory_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
)

// Units are held while a buyer pays. Each buyer gets two at most.
func Example_hold() {
	ctx := context.Background()
	url, done := testdb.ExampleDSN(devdb.Postgres) // yours: postgres://app@db.example/shop
	defer done()
	pool, err := examplePool(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	store, err := pginventory.New(ctx, pool, inventory.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close(ctx) }()
	if _, err := store.Restock(ctx, inventory.Adjustment{ID: "delivery-4711", SKU: "headphones", Delta: 3}); err != nil {
		fmt.Println(err)
		return
	}

	order := inventory.Request{Key: "order-1", SKU: "headphones", Buyer: "ann", Qty: 2, Limit: 2, Hold: 10 * time.Minute}
	held, err := store.Reserve(ctx, order)
	fmt.Println(held.State, err)

	order.Key, order.Qty = "order-2", 1
	_, err = store.Reserve(ctx, order)
	fmt.Println("a third one:", errors.Is(err, inventory.ErrLimitExceeded))

	sold, err := store.Confirm(ctx, "order-1") // ann has paid
	fmt.Println(sold.State, err)

	books, err := store.Audit(ctx, "headphones")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("left:", books[0].Available, "sold:", books[0].Sold, "drift:", books[0].Drift())
	// Output:
	// held <nil>
	// a third one: true
	// sold <nil>
	// left: 1 sold: 2 drift: 0
}
