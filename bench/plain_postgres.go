package bench

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/inventory"
)

// postgresSell sells one order, or returns ErrSoldOut or ErrBusy.
type postgresSell func(context.Context, *pgxpool.Pool, inventory.Request) error

// OnPostgres sells from the database of pool, whose deliveries and books are store's.
func (p PlainSale) OnPostgres(store *inventory.Store, pool *pgxpool.Pool) *PlainShop {
	shop := &PlainShop{Store: store, sell: func(ctx context.Context, r inventory.Request) error { return p.onPostgres(ctx, pool, r) }}
	if p.spread {
		shop.spread = func(ctx context.Context, sku string, share int64) error {
			_, err := pool.Exec(ctx, spreadPostgres, sku, share, plainBuckets-1)
			return err
		}
	}
	return shop
}

const spreadPostgres = `
WITH taken AS (UPDATE dblock_stock SET available = available - $2::bigint * $3::int WHERE sku = $1 AND bucket = 0)
INSERT INTO dblock_stock (sku, bucket, available) SELECT $1, n, $2 FROM generate_series(1, $3::int) n`

// The order and its units: what is taken ends a statement that begins with WITH. $1 is the key, $2 the SKU, $3 the buyer, $4 the quantity.
const (
	orderFromTaken = `
INSERT INTO dblock_reservation (reservation_key, sku, bucket, buyer, qty, state)
SELECT $1, taken.sku, taken.bucket, $3, $4::bigint, 2 FROM taken`

	orderAndAnswer = `, sold AS (` + orderFromTaken + ` RETURNING 1)
SELECT EXISTS (SELECT FROM sold), EXISTS (SELECT FROM dblock_stock WHERE sku = $2 AND available >= $4::bigint)`

	takeHeld = `, taken AS (
    UPDATE dblock_stock s SET available = s.available - $4::bigint FROM held
    WHERE s.sku = held.sku AND s.bucket = held.bucket RETURNING s.sku, s.bucket
)`

	seeStock = "SELECT available FROM dblock_stock WHERE sku = $1 AND bucket = 0"

	noWaitPostgres = `WITH held AS MATERIALIZED (
    SELECT sku, bucket FROM dblock_stock WHERE sku = $2 AND bucket = 0 AND available >= $4::bigint FOR UPDATE NOWAIT
)` + takeHeld + orderFromTaken

	skipLockedPostgres = `WITH held AS MATERIALIZED (
    SELECT sku, bucket FROM dblock_stock WHERE sku = $2 AND available >= $4::bigint
    ORDER BY bucket < $5::int, bucket LIMIT 1 FOR UPDATE SKIP LOCKED
)` + takeHeld + orderAndAnswer

	swapPostgres = `WITH taken AS (
    UPDATE dblock_stock SET available = available - $4::bigint
    WHERE sku = $2 AND bucket = 0 AND available = $5::bigint RETURNING sku, bucket
)` + orderFromTaken

	// The function is in the WHERE of the one row that the key finds, and never beside ORDER BY, LIMIT or OR.
	advisoryPostgres = `WITH taken AS (
    UPDATE dblock_stock SET available = available - $4::bigint
    WHERE sku = $2 AND bucket = 0 AND available >= $4::bigint AND pg_try_advisory_xact_lock(hashtextextended($2, 0)) RETURNING sku, bucket
)` + orderAndAnswer
)

// postgresForUpdate takes two round trips.
func postgresForUpdate(ctx context.Context, pool *pgxpool.Pool, r inventory.Request) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // which closes it where the transaction is still open
	var left int64
	var look, write pgx.Batch
	look.Queue("BEGIN")
	look.Queue(seeStock+" FOR UPDATE", r.SKU).QueryRow(func(row pgx.Row) error { return row.Scan(&left) })
	if err := conn.SendBatch(ctx, &look).Close(); err != nil {
		return err
	}
	if left < r.Qty {
		_, err := conn.Exec(ctx, "ROLLBACK")
		return errors.Join(inventory.ErrSoldOut, err)
	}
	write.Queue("INSERT INTO dblock_reservation (reservation_key, sku, bucket, buyer, qty, state) VALUES ($1, $2, 0, $3, $4, 2)",
		r.Key, r.SKU, r.Buyer, r.Qty)
	write.Queue("UPDATE dblock_stock SET available = available - $2 WHERE sku = $1 AND bucket = 0", r.SKU, r.Qty)
	write.Queue("COMMIT")
	return conn.SendBatch(ctx, &write).Close()
}

func postgresNoWait(ctx context.Context, pool *pgxpool.Pool, r inventory.Request) error {
	tag, err := pool.Exec(ctx, noWaitPostgres, r.Key, r.SKU, r.Buyer, r.Qty)
	switch {
	case postgres.IsLocked(err):
		return dblock.ErrBusy
	case err == nil && tag.RowsAffected() == 0:
		return inventory.ErrSoldOut
	}
	return err
}

// postgresSkipLocked begins with any of the buckets, or all would begin with the same.
func postgresSkipLocked(ctx context.Context, pool *pgxpool.Pool, r inventory.Request) error {
	return answered(pool.QueryRow(ctx, skipLockedPostgres, r.Key, r.SKU, r.Buyer, r.Qty, rand.IntN(plainBuckets)))
}

func postgresAdvisory(ctx context.Context, pool *pgxpool.Pool, r inventory.Request) error {
	return answered(pool.QueryRow(ctx, advisoryPostgres, r.Key, r.SKU, r.Buyer, r.Qty))
}

// answered reads whether the order was sold, and whether there was enough for it before.
func answered(row pgx.Row) error {
	var sold, enough bool
	if err := row.Scan(&sold, &enough); err != nil || sold {
		return err
	}
	return busyOrSoldOut(enough)
}

// postgresCAS has its connection from the look to the write: so no more orders race than there are connections.
func postgresCAS(ctx context.Context, pool *pgxpool.Pool, r inventory.Request) error {
	return swapped(ctx, func() error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		var left int64
		if err := conn.QueryRow(ctx, seeStock, r.SKU).Scan(&left); err != nil {
			return err
		}
		if left < r.Qty {
			return inventory.ErrSoldOut
		}
		tag, err := conn.Exec(ctx, swapPostgres, r.Key, r.SKU, r.Buyer, r.Qty, left)
		if err == nil && tag.RowsAffected() == 0 {
			err = dblock.ErrBusy
		}
		return err
	})
}
