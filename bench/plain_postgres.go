package bench

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory"
)

// The order and its units: what is taken ends a statement that begins with WITH. $1 is the key, $2
// the SKU, $3 the buyer, $4 the quantity.
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

	// The function is in the WHERE of the one row that the key finds, and never beside ORDER BY,
	// LIMIT or OR.
	advisoryPostgres = `WITH taken AS (
    UPDATE dblock_stock SET available = available - $4::bigint
    WHERE sku = $2 AND bucket = 0 AND available >= $4::bigint AND pg_try_advisory_xact_lock(hashtextextended($2, 0)) RETURNING sku, bucket
)` + orderAndAnswer
)

// postgresForUpdate takes two round trips.
func postgresForUpdate(ctx context.Context, db *Database, r inventory.Request) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // which closes it if the transaction is still open
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
	write.Queue(plainOrder, r.Key, r.SKU, 0, r.Buyer, r.Qty)
	write.Queue(plainTake, r.Qty, r.SKU, 0)
	write.Queue("COMMIT")
	return conn.SendBatch(ctx, &write).Close()
}

func postgresNoWait(ctx context.Context, db *Database, r inventory.Request) error {
	rows, err := db.Exec(ctx, noWaitPostgres, r.Key, r.SKU, r.Buyer, r.Qty)
	if err == nil && rows == 0 {
		return inventory.ErrSoldOut
	}
	return busyIfLocked(err)
}

// postgresSkipLocked begins with any of the buckets, or all would begin with the same.
func postgresSkipLocked(ctx context.Context, db *Database, r inventory.Request) error {
	return answered(db.Query(ctx, skipLockedPostgres, r.Key, r.SKU, r.Buyer, r.Qty, rand.IntN(plainBuckets)))
}

func postgresAdvisory(ctx context.Context, db *Database, r inventory.Request) error {
	return answered(db.Query(ctx, advisoryPostgres, r.Key, r.SKU, r.Buyer, r.Qty))
}

// answered reads whether the order was sold, and whether there was enough for it before.
func answered(row Row) error {
	var sold, enough bool
	if err := row.Scan(&sold, &enough); err != nil || sold {
		return err
	}
	return busyOrSoldOut(enough)
}

// postgresCAS has its connection from the look to the write: so no more orders race than there are
// connections.
func postgresCAS(ctx context.Context, db *Database, r inventory.Request) error {
	return swapped(ctx, func() error {
		conn, release, err := db.Keep(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = release(false) }() // the pool closes it if it is broken
		left, err := look(ctx, conn, seeStock, r)
		if err != nil {
			return err
		}
		rows, err := conn.Exec(ctx, swapPostgres, r.Key, r.SKU, r.Buyer, r.Qty, left)
		if err == nil && rows == 0 {
			err = dblock.ErrBusy
		}
		return err
	})
}
