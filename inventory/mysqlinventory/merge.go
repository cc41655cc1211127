package mysqlinventory

import (
	"context"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysqltext"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// Transact takes the same few round trips whatever the size of the batch. There is no statement
// that writes to two tables, and no way to send several at once that does not depend on the DSN.
func (d *database) Transact(
	ctx context.Context, skus, keys []string, wait bool, decide func(engine.Books) engine.Plan,
) error {
	return d.inTx(ctx, func(on mysqldb.DBTX) (bool, error) {
		books, err := d.read(ctx, on, skus, keys, wait)
		if err != nil {
			return false, err
		}
		plan := decide(books)
		if len(plan.Insert) == 0 {
			return false, nil // a rollback needs no flush
		}
		return true, d.write(ctx, on, plan)
	})
}

// read locks the stock and reads what is recorded. The look-up is a statement of its own after
// the lock: only then it sees what others committed while we waited.
func (d *database) read(ctx context.Context, on mysqldb.DBTX, skus, keys []string, wait bool) (engine.Books, error) {
	var books engine.Books
	var err error
	books.Stock, err = d.lock(ctx, on, skus, wait)
	if err != nil {
		return books, err
	}
	if len(books.Stock) < len(skus) && !wait {
		known, err := d.q.KnownSKUs(ctx, on, blobs(skus))
		if err != nil {
			return books, err
		}
		books.Skipped = engine.Skipped(texts(known), books.Stock)
	}
	if len(keys) > 0 {
		books.Recorded, err = d.recorded(ctx, on, keys)
	}
	return books, err
}

func (d *database) lock(ctx context.Context, on mysqldb.DBTX, skus []string, wait bool) (map[string]int64, error) {
	stock := make(map[string]int64, len(skus))
	if wait {
		rows, err := d.q.LockStock(ctx, on, blobs(skus))
		for _, r := range rows {
			stock[string(r.Sku)] = r.Available
		}
		return stock, err
	}
	rows, err := d.q.LockFreeStock(ctx, on, blobs(skus))
	for _, r := range rows {
		stock[string(r.Sku)] = r.Available
	}
	return stock, err
}

func (d *database) recorded(ctx context.Context, on mysqldb.DBTX, keys []string) (map[string]engine.Row, error) {
	rows, err := d.q.Reservations(ctx, on, blobs(keys))
	found := make(map[string]engine.Row, len(rows))
	for _, r := range rows {
		key := string(r.ReservationKey)
		found[key] = engine.Row{Key: key, SKU: string(r.Sku), Buyer: string(r.Buyer), Qty: r.Qty, State: r.State}
	}
	return found, err
}

func (d *database) write(ctx context.Context, on mysqldb.DBTX, plan engine.Plan) error {
	var rows []any
	for _, r := range plan.Insert {
		rows = append(rows, []byte(r.Key), []byte(r.SKU), []byte(r.Buyer), r.Qty, r.State)
	}
	if _, err := on.ExecContext(ctx, mysqltext.Rows(mysqldb.InsertReservations, len(plan.Insert)), rows...); err != nil {
		return err
	}
	if len(plan.Take) == 0 {
		return nil
	}
	var units []any
	for _, u := range plan.Take {
		units = append(units, []byte(u.SKU), u.Qty)
	}
	_, err := on.ExecContext(ctx, mysqltext.Rows(mysqldb.TakeStock, len(plan.Take)), units...)
	return err
}

func blobs(texts []string) [][]byte {
	b := make([][]byte, len(texts))
	for i, s := range texts {
		b[i] = []byte(s)
	}
	return b
}

func texts(blobs [][]byte) []string {
	t := make([]string, len(blobs))
	for i, b := range blobs {
		t[i] = string(b)
	}
	return t
}
