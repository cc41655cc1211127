package inventory_test

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory"
)

// A Store sells what was restocked, once for each key. The packages pginventory and mysqlinventory
// have whole programs.
func ExampleStore() {
	ctx := context.Background()
	var store *inventory.Store // of pginventory.New or mysqlinventory.New

	delivery := inventory.Adjustment{ID: "delivery-4711", SKU: "headphones", Delta: 300}
	if _, err := store.Restock(ctx, delivery); err != nil {
		log.Fatal(err)
	}
	order := inventory.Request{Key: "order 1", SKU: "headphones", Buyer: "ann", Qty: 1}
	switch sold, err := store.Reserve(ctx, order); {
	case errors.Is(err, inventory.ErrSoldOut):
		log.Print("too few are left")
	case errors.Is(err, dblock.ErrOutcomeUnknown):
		log.Print("no reply: send the same key again")
	case err != nil:
		log.Print("nothing was written: ", err)
	case sold.Replayed:
		log.Print("this order was sold before")
	}
}

// Units are held while the buyer pays, and for sale again if she does not.
func ExampleStore_Confirm() {
	ctx := context.Background()
	var store *inventory.Store // of pginventory.New or mysqlinventory.New

	go func() {
		if err := store.RunSweeper(ctx, time.Second); err != nil { // in every process
			log.Print(err)
		}
	}()
	held, err := store.Reserve(ctx, inventory.Request{
		Key: "order 1", SKU: "headphones", Buyer: "ann", Qty: 2,
		Hold:  10 * time.Minute,
		Limit: 2, // units of a buyer
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Print("pay before ", held.ExpiresAt)
	if _, err := store.Confirm(ctx, held.Key); errors.Is(err, inventory.ErrExpired) {
		log.Print("too late")
	}
}

// A cart is sold as a whole, or not at all.
func ExampleStore_ReserveAll() {
	ctx := context.Background()
	var store *inventory.Store // of pginventory.New or mysqlinventory.New

	_, err := store.ReserveAll(ctx, inventory.Cart{
		Key: "cart 1", Buyer: "ann",
		Lines: []inventory.Line{{SKU: "poster", Qty: 2}, {SKU: "frame", Qty: 2}},
	})
	var soldOut *inventory.SoldOutError
	if errors.As(err, &soldOut) {
		log.Print("too few of ", soldOut.Short)
	}
}
