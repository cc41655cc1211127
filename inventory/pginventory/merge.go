package pginventory

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// Transact takes two round trips, whatever the size of the batch: one to lock and read, one to
// write and commit. The hot row is locked for one turn of the client's, the inserts and a flush.
func (d *database) Transact(
	ctx context.Context, skus, keys []string, wait bool, decide func(engine.Books) engine.Plan,
) error {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return fault.NoWrite(err)
	}
	defer conn.Release() // which closes it where the transaction is still open
	books, err := d.read(ctx, conn, skus, keys, wait)
	if err != nil {
		rollback(ctx, conn)
		return fault.NoWrite(err)
	}
	plan := decide(books)
	if len(plan.Insert) == 0 {
		rollback(ctx, conn) // a commit of nothing but row locks would cost a flush
		return nil
	}
	if err := d.write(ctx, conn, plan); err != nil {
		rollback(ctx, conn)
		return err
	}
	return nil
}

// read begins the transaction, locks the stock and reads what is recorded. The look-up is a
// statement of its own after the lock: only then its snapshot holds what others committed while
// we waited.
func (d *database) read(ctx context.Context, conn *pgxpool.Conn, skus, keys []string, wait bool) (engine.Books, error) {
	lock := pgdb.LockStock
	if !wait {
		lock = pgdb.LockFreeStock
	}
	books := engine.Books{Stock: make(map[string][]engine.Bucket, len(skus))}
	known := make(map[string]int64)
	var batch pgx.Batch
	batch.Queue(beginReadCommitted)
	batch.Queue("select set_config('lock_timeout', $1, true)", lockTimeout(ctx))
	batch.Queue(d.sql(lock), skus).Query(func(rows pgx.Rows) error {
		return each(rows, func(r pgdb.LockStockRow) {
			books.Stock[r.Sku] = append(books.Stock[r.Sku], engine.Bucket{Number: r.Bucket, Left: r.Available})
		})
	})
	if !wait {
		batch.Queue(d.sql(pgdb.KnownBuckets), skus).Query(func(rows pgx.Rows) error {
			return each(rows, func(r pgdb.KnownBucketsRow) { known[r.Sku] = r.Buckets })
		})
	}
	if len(keys) > 0 {
		batch.Queue(d.sql(pgdb.Reservations), keys).Query(func(rows pgx.Rows) (err error) {
			books.Recorded, err = recorded(rows)
			return err
		})
	}
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return engine.Books{}, err
	}
	books.Skipped = func(sku string) bool { return int64(len(books.Stock[sku])) < known[sku] }
	return books, nil
}

// write writes the plan and commits. Once this is sent, a lost connection leaves it open whether
// the commit took place.
func (d *database) write(ctx context.Context, conn *pgxpool.Conn, plan engine.Plan) error {
	keys, skus, buyers, qtys, states := columns(plan.Insert)
	var batch pgx.Batch
	batch.Queue("select set_config('lock_timeout', $1, true)", keyTimeout)
	batch.Queue(d.sql(pgdb.InsertReservations), keys, skus, buyers, qtys, states)
	if len(plan.Take) > 0 {
		from, buckets, units := unitColumns(plan.Take)
		batch.Queue(d.sql(pgdb.TakeStock), from, buckets, units)
	}
	var tag string
	batch.Queue("commit").Exec(func(ct pgconn.CommandTag) error {
		tag = ct.String()
		return nil
	})
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return orKeyTaken(err)
	}
	if tag != "COMMIT" {
		return &fault.Uncommitted{Err: errors.New("pginventory: the server answered " + tag + " to commit")}
	}
	return nil
}

func columns(rows []engine.Row) (keys, skus, buyers []string, qtys []int64, states []int16) {
	for _, r := range rows {
		keys = append(keys, r.Key)
		skus = append(skus, r.SKU)
		buyers = append(buyers, r.Buyer)
		qtys = append(qtys, r.Qty)
		states = append(states, r.State)
	}
	return keys, skus, buyers, qtys, states
}

func unitColumns(units []engine.Units) (skus []string, buckets []int32, qtys []int64) {
	for _, u := range units {
		skus = append(skus, u.SKU)
		buckets = append(buckets, u.Bucket)
		qtys = append(qtys, u.Qty)
	}
	return skus, buckets, qtys
}

func recorded(rows pgx.Rows) (map[string]engine.Row, error) {
	found := make(map[string]engine.Row)
	err := each(rows, func(r pgdb.ReservationsRow) {
		found[r.ReservationKey] = engine.Row{Key: r.ReservationKey, SKU: r.Sku, Buyer: r.Buyer, Qty: r.Qty, State: r.State}
	})
	return found, err
}

// each calls f with every row, scanned into T's fields in their order.
func each[T any](rows pgx.Rows, f func(T)) error {
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	for _, r := range all {
		f(r)
	}
	return err
}
