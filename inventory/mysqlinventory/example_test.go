package mysqlinventory_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
	"github.com/dblock-go/dblock/migrations"
)

func Example() {
	ctx := context.Background()
	dsn, done := testdb.ExampleDSN(family()[0]) // yours: app@tcp(db.example:3306)/shop
	defer done()

	db, err := sql.Open("mysql", dsn)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	if _, err := migrations.Up(ctx, db, migrations.Options{}); err != nil { // or: dblock migrate up
		fmt.Println(err)
		return
	}
	store, err := mysqlinventory.New(ctx, db, inventory.Options{})
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
