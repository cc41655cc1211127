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
		known := buckets{ctx: ctx, on: on, d: d, skus: skus}
		books.Skipped = func(sku string) bool { return !wait && int64(len(books.Stock[sku])) < known.of(sku) }
		plan := decide(books)
		if known.err != nil {
			return false, known.err
		}
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
	if len(keys) > 0 {
		books.Recorded, err = d.recorded(ctx, on, keys)
	}
	return books, err
}

func (d *database) lock(
	ctx context.Context, on mysqldb.DBTX, skus []string, wait bool,
) (map[string][]engine.Bucket, error) {
	stock := make(map[string][]engine.Bucket, len(skus))
	add := func(r mysqldb.LockStockRow) {
		stock[string(r.Sku)] = append(stock[string(r.Sku)], engine.Bucket{Number: r.Bucket, Left: r.Available})
	}
	if wait {
		rows, err := d.q.LockStock(ctx, on, blobs(skus))
		for _, r := range rows {
			add(r)
		}
		return stock, err
	}
	rows, err := d.q.LockFreeStock(ctx, on, blobs(skus))
	for _, r := range rows {
		add(mysqldb.LockStockRow(r))
	}
	return stock, err
}

// buckets counts the buckets of each SKU, locked or not, when that is first asked: only who does
// not fit makes it matter.
type buckets struct {
	ctx   context.Context
	on    mysqldb.DBTX
	d     *database
	skus  []string
	known map[string]int64
	err   error
}

func (b *buckets) of(sku string) int64 {
	if b.known == nil {
		b.known = make(map[string]int64, len(b.skus))
		var rows []mysqldb.KnownBucketsRow
		rows, b.err = b.d.q.KnownBuckets(b.ctx, b.on, blobs(b.skus))
		for _, r := range rows {
			b.known[string(r.Sku)] = r.Buckets
		}
	}
	return b.known[sku]
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
	return d.units(ctx, on, mysqldb.TakeStock, plan.Take)
}

// units runs a statement that has one row a bucket.
func (d *database) units(ctx context.Context, on mysqldb.DBTX, query string, units []engine.Units) error {
	var args []any
	for _, u := range units {
		args = append(args, []byte(u.SKU), u.Bucket, u.Qty)
	}
	_, err := on.ExecContext(ctx, mysqltext.Rows(query, len(units)), args...)
	return err
}

func blobs(texts []string) [][]byte {
	b := make([][]byte, len(texts))
	for i, s := range texts {
		b[i] = []byte(s)
	}
	return b
}
