package pginventory_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
	"github.com/dblock-go/dblock/migrations"
)

// examplePool is a database with the tables, and one of the shop's own.
func examplePool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	if _, err := migrations.Up(ctx, pool, migrations.Options{}); err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, "CREATE TABLE shop_order (order_key text PRIMARY KEY, buyer text NOT NULL)")
	return pool, err
}

func ExampleReserveTx() {
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
	if _, err := store.Restock(ctx, inventory.Adjustment{ID: "delivery-4711", SKU: "headphones", Delta: 2}); err != nil {
		fmt.Println(err)
		return
	}

	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO shop_order (order_key, buyer) VALUES ('order-1', 'ann')"); err != nil {
			return err
		}
		_, err := pginventory.ReserveTx(ctx, store, tx, inventory.Request{Key: "order-1", SKU: "headphones", Buyer: "ann", Qty: 1})
		return err // dblock.ErrConflict: run it again
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var orders int
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM shop_order").Scan(&orders); err != nil {
		fmt.Println(err)
		return
	}
	r, err := store.Lookup(ctx, "order-1")
	fmt.Println(orders, r.State, err)
	// Output: 1 sold <nil>
}

func ExampleWithHook() {
	ctx := context.Background()
	url, done := testdb.ExampleDSN(devdb.Postgres) // yours: postgres://app@db.example/shop
	defer done()
	pool, err := examplePool(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()

	writeOrders := func(ctx context.Context, tx pginventory.HookTx, granted []inventory.Reservation) error {
		keys, buyers := make([]string, len(granted)), make([]string, len(granted))
		for i, r := range granted {
			keys[i], buyers[i] = r.Key, r.Buyer
		}
		_, err := tx.Exec(ctx, "INSERT INTO shop_order (order_key, buyer) SELECT * FROM unnest($1::text[], $2::text[])", keys, buyers)
		return err
	}
	store, err := pginventory.New(ctx, pool, inventory.Options{}, pginventory.WithHook(writeOrders))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close(ctx) }()
	if _, err := store.Restock(ctx, inventory.Adjustment{ID: "delivery-4711", SKU: "headphones", Delta: 2}); err != nil {
		fmt.Println(err)
		return
	}
	for range 2 { // the second time it is recorded, and not passed to the hook
		if _, err := store.Reserve(ctx, inventory.Request{Key: "order-1", SKU: "headphones", Buyer: "ann", Qty: 1}); err != nil {
			fmt.Println(err)
			return
		}
	}
	var key, buyer string
	err = pool.QueryRow(ctx, "SELECT order_key, buyer FROM shop_order").Scan(&key, &buyer)
	fmt.Println(key, buyer, err)
	// Output: order-1 ann <nil>
}
