package bench

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/inventory"
)

// mysqlSell sells one order in a transaction that is committed unless it returns an error: ErrSoldOut or ErrBusy, for example.
type mysqlSell func(context.Context, mysql.Conn, inventory.Request) error

// OnMySQL sells from the database of db, whose deliveries and books are store's.
func (p PlainSale) OnMySQL(store *inventory.Store, db *sql.DB) *PlainShop {
	shop := &PlainShop{Store: store}
	shop.sell = func(ctx context.Context, r inventory.Request) error {
		sell := func() error {
			return inPlainTx(ctx, db, func(tx mysql.Conn) error { return p.onMySQL(ctx, tx, r) })
		}
		if p.Name == "cas" {
			return swapped(ctx, sell)
		}
		return sell()
	}
	if p.spread {
		shop.spread = func(ctx context.Context, sku string, share int64) error {
			return inPlainTx(ctx, db, func(tx mysql.Conn) error { return spreadMySQL(ctx, tx, sku, share) })
		}
	}
	return shop
}

// inPlainTx sends statements with their arguments in place, so that each is one round trip.
func inPlainTx(ctx context.Context, db *sql.DB, fn func(mysql.Conn) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := fn(mysql.Inline{Conn: tx}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func spreadMySQL(ctx context.Context, tx mysql.Conn, sku string, share int64) error {
	const take = "UPDATE dblock_stock SET available = available - ? WHERE sku = ? AND bucket = 0"
	if _, err := tx.ExecContext(ctx, take, share*(plainBuckets-1), []byte(sku)); err != nil {
		return err
	}
	for bucket := range int64(plainBuckets - 1) {
		const add = "INSERT INTO dblock_stock (sku, bucket, available) VALUES (?, ?, ?)"
		if _, err := tx.ExecContext(ctx, add, []byte(sku), bucket+1, share); err != nil {
			return err
		}
	}
	return nil
}

const seeStockMySQL = "SELECT available FROM dblock_stock WHERE sku = ? AND bucket = 0"

// writePlain writes the order, and takes its units last.
func writePlain(ctx context.Context, tx mysql.Conn, r inventory.Request, bucket int64) error {
	const order = "INSERT INTO dblock_reservation (reservation_key, sku, bucket, buyer, qty, state) VALUES (?, ?, ?, ?, ?, 2)"
	if _, err := tx.ExecContext(ctx, order, []byte(r.Key), []byte(r.SKU), bucket, []byte(r.Buyer), r.Qty); err != nil {
		return err
	}
	const take = "UPDATE dblock_stock SET available = available - ? WHERE sku = ? AND bucket = ?"
	_, err := tx.ExecContext(ctx, take, r.Qty, []byte(r.SKU), bucket)
	return err
}

func mysqlForUpdate(ctx context.Context, tx mysql.Conn, r inventory.Request) error {
	return sellLocked(ctx, tx, r, " FOR UPDATE")
}

func mysqlNoWait(ctx context.Context, tx mysql.Conn, r inventory.Request) error {
	err := sellLocked(ctx, tx, r, " FOR UPDATE NOWAIT")
	if mysql.IsLocked(err) {
		return dblock.ErrBusy
	}
	return err
}

func sellLocked(ctx context.Context, tx mysql.Conn, r inventory.Request, lock string) error {
	var left int64
	if err := tx.QueryRowContext(ctx, seeStockMySQL+lock, []byte(r.SKU)).Scan(&left); err != nil {
		return err
	}
	if left < r.Qty {
		return inventory.ErrSoldOut
	}
	return writePlain(ctx, tx, r, 0)
}

// mysqlSkipLocked begins with any of the buckets, or all would begin with the same. The primary key is read in its order: sorted, every
// bucket that is read would be locked.
func mysqlSkipLocked(ctx context.Context, tx mysql.Conn, r inventory.Request) error {
	const (
		from   = "SELECT bucket FROM dblock_stock WHERE sku = ? AND available >= ? AND bucket >= ? ORDER BY bucket LIMIT 1 FOR UPDATE SKIP LOCKED"
		before = "SELECT bucket FROM dblock_stock WHERE sku = ? AND available >= ? AND bucket < ? ORDER BY bucket LIMIT 1 FOR UPDATE SKIP LOCKED"
		have   = "SELECT COUNT(*) FROM dblock_stock WHERE sku = ? AND available >= ?"
	)
	first := rand.Int64N(plainBuckets)
	var bucket, rich int64
	for _, query := range []string{from, before} {
		err := tx.QueryRowContext(ctx, query, []byte(r.SKU), r.Qty, first).Scan(&bucket)
		if err == nil {
			return writePlain(ctx, tx, r, bucket)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	if err := tx.QueryRowContext(ctx, have, []byte(r.SKU), r.Qty).Scan(&rich); err != nil {
		return err
	}
	return busyOrSoldOut(rich > 0)
}

// mysqlCAS takes the units first: most attempts end there.
func mysqlCAS(ctx context.Context, tx mysql.Conn, r inventory.Request) error {
	var left int64
	if err := tx.QueryRowContext(ctx, seeStockMySQL, []byte(r.SKU)).Scan(&left); err != nil {
		return err
	}
	if left < r.Qty {
		return inventory.ErrSoldOut
	}
	const swap = "UPDATE dblock_stock SET available = available - ? WHERE sku = ? AND bucket = 0 AND available = ?"
	result, err := tx.ExecContext(ctx, swap, r.Qty, []byte(r.SKU), left)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(dblock.ErrBusy, err)
	}
	const order = "INSERT INTO dblock_reservation (reservation_key, sku, bucket, buyer, qty, state) VALUES (?, ?, 0, ?, ?, 2)"
	_, err = tx.ExecContext(ctx, order, []byte(r.Key), []byte(r.SKU), []byte(r.Buyer), r.Qty)
	return err
}
