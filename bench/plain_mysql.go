package bench

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory"
)

func mysqlForUpdate(ctx context.Context, db *Database, r inventory.Request) error {
	return sellLocked(ctx, db, r, seeStock+" FOR UPDATE")
}

func mysqlNoWait(ctx context.Context, db *Database, r inventory.Request) error {
	return busyIfLocked(sellLocked(ctx, db, r, seeStock+" FOR UPDATE NOWAIT"))
}

func sellLocked(ctx context.Context, db *Database, r inventory.Request, query string) error {
	return db.Tx(ctx, func(tx Conn) error {
		if _, err := look(ctx, tx, query, r); err != nil {
			return err
		}
		return writePlain(ctx, tx, r, 0)
	})
}

// mysqlSkipLocked begins with any of the buckets, or all would begin with the same. The primary key
// is read in its order: sorted, every bucket that is read would be locked.
func mysqlSkipLocked(ctx context.Context, db *Database, r inventory.Request) error {
	const (
		from   = "SELECT bucket FROM dblock_stock WHERE sku = $1 AND available >= $2 AND bucket >= $3 ORDER BY bucket LIMIT 1 FOR UPDATE SKIP LOCKED"
		before = "SELECT bucket FROM dblock_stock WHERE sku = $1 AND available >= $2 AND bucket < $3 ORDER BY bucket LIMIT 1 FOR UPDATE SKIP LOCKED"
		have   = "SELECT COUNT(*) FROM dblock_stock WHERE sku = $1 AND available >= $2"
	)
	first := rand.Int64N(plainBuckets)
	return db.Tx(ctx, func(tx Conn) error {
		var bucket, rich int64
		for _, query := range []string{from, before} {
			err := tx.Query(ctx, query, r.SKU, r.Qty, first).Scan(&bucket)
			if err == nil {
				return writePlain(ctx, tx, r, bucket)
			}
			if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		if err := tx.Query(ctx, have, r.SKU, r.Qty).Scan(&rich); err != nil {
			return err
		}
		return busyOrSoldOut(rich > 0)
	})
}

// mysqlCAS takes the units first: most attempts end there.
func mysqlCAS(ctx context.Context, db *Database, r inventory.Request) error {
	return swapped(ctx, func() error {
		return db.Tx(ctx, func(tx Conn) error {
			left, err := look(ctx, tx, seeStock, r)
			if err != nil {
				return err
			}
			const swap = "UPDATE dblock_stock SET available = available - $1 WHERE sku = $2 AND bucket = 0 AND available = $3"
			rows, err := tx.Exec(ctx, swap, r.Qty, r.SKU, left)
			if err == nil && rows == 0 {
				err = dblock.ErrBusy
			}
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, plainOrder, r.Key, r.SKU, 0, r.Buyer, r.Qty)
			return err
		})
	})
}
