package mysqlinventory_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
	"github.com/dblock-go/dblock/migrations"
)

// exampleDB is a database with the tables, and one of the shop's own.
func exampleDB(ctx context.Context, dsn string) (*sql.DB, error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, err
	}
	if _, err := migrations.Up(ctx, db, migrations.Options{}); err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE shop_order (order_key varchar(200) PRIMARY KEY, buyer varchar(200) NOT NULL)")
	return db, err
}

func ExampleReserveTx() {
	ctx := context.Background()
	dsn, done := testdb.ExampleDSN(family()[0]) // yours: app@tcp(db.example:3306)/shop
	defer done()
	db, err := exampleDB(ctx, dsn)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	store, err := mysqlinventory.New(ctx, db, inventory.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close(ctx) }()
	if _, err := store.Restock(ctx, inventory.Adjustment{ID: "delivery-4711", SKU: "headphones", Delta: 2}); err != nil {
		fmt.Println(err)
		return
	}

	order := func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO shop_order (order_key, buyer) VALUES ('order-1', 'ann')"); err != nil {
			return err
		}
		_, err := mysqlinventory.ReserveTx(ctx, store, tx, inventory.Request{Key: "order-1", SKU: "headphones", Buyer: "ann", Qty: 1})
		return err // dblock.ErrConflict: run it again
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := order(tx); err != nil {
		fmt.Println(errors.Join(err, tx.Rollback()))
		return
	}
	err = tx.Commit()
	if err != nil {
		fmt.Println(err)
		return
	}
	var orders int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM shop_order").Scan(&orders); err != nil {
		fmt.Println(err)
		return
	}
	r, err := store.Lookup(ctx, "order-1")
	fmt.Println(orders, r.State, err)
	// Output: 1 sold <nil>
}

func ExampleWithHook() {
	ctx := context.Background()
	dsn, done := testdb.ExampleDSN(family()[0]) // yours: app@tcp(db.example:3306)/shop
	defer done()
	db, err := exampleDB(ctx, dsn)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()

	writeOrders := func(ctx context.Context, tx mysqlinventory.HookTx, granted []inventory.Reservation) error {
		var args []any
		for _, r := range granted {
			args = append(args, r.Key, r.Buyer)
		}
		rows := strings.TrimSuffix(strings.Repeat("(?, ?), ", len(granted)), ", ")
		_, err := tx.ExecContext(ctx, "INSERT INTO shop_order (order_key, buyer) VALUES "+rows, args...)
		return err
	}
	store, err := mysqlinventory.New(ctx, db, inventory.Options{}, mysqlinventory.WithHook(writeOrders))
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
	err = db.QueryRowContext(ctx, "SELECT order_key, buyer FROM shop_order").Scan(&key, &buyer)
	fmt.Println(key, buyer, err)
	// Output: order-1 ann <nil>
}
