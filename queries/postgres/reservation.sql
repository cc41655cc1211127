-- One statement sells one order. Nothing happens, and no row is locked, where too little is left.
-- The bound on the lock is set inside it, so that it holds behind a pooler too and ends with it.
-- name: SellOne :execrows
WITH bound AS MATERIALIZED (
    SELECT set_config('lock_timeout', sqlc.arg(lock_timeout), true) AS lock_timeout
), taken AS (
    UPDATE dblock_stock s
    SET available = s.available - sqlc.arg(qty)
    FROM bound
    WHERE s.sku = sqlc.arg(sku) AND s.bucket = 0 AND s.available >= sqlc.arg(qty)
      AND bound.lock_timeout IS NOT NULL
    RETURNING s.sku, s.bucket
)
INSERT INTO dblock_reservation (reservation_key, sku, bucket, buyer, qty, state)
SELECT sqlc.arg(reservation_key), taken.sku, taken.bucket, sqlc.arg(buyer), sqlc.arg(qty), 2
FROM taken;

-- Rows are locked in the order of their SKU, so that two batches never wait for each other.
-- name: LockStock :many
SELECT s.sku, s.available
FROM dblock_stock s
WHERE s.sku = ANY (sqlc.arg(skus)::text[]) AND s.bucket = 0
ORDER BY s.sku
FOR NO KEY UPDATE;

-- The same, but a row that is locked is left out: it would stall the other SKUs of the batch.
-- name: LockFreeStock :many
SELECT s.sku, s.available
FROM dblock_stock s
WHERE s.sku = ANY (sqlc.arg(skus)::text[]) AND s.bucket = 0
ORDER BY s.sku
FOR NO KEY UPDATE SKIP LOCKED;

-- name: KnownSKUs :many
SELECT s.sku
FROM dblock_stock s
WHERE s.sku = ANY (sqlc.arg(skus)::text[]) AND s.bucket = 0;

-- name: Reservations :many
SELECT r.reservation_key, r.sku, r.buyer, r.qty, r.state
FROM dblock_reservation r
WHERE r.reservation_key = ANY (sqlc.arg(reservation_keys)::text[]) AND r.line = 0;

-- name: InsertReservations :exec
INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state)
SELECT n.reservation_key, n.sku, n.buyer, n.qty, n.state
FROM ROWS FROM (
    unnest(sqlc.arg(reservation_keys)::text[]), unnest(sqlc.arg(skus)::text[]), unnest(sqlc.arg(buyers)::text[]),
    unnest(sqlc.arg(qtys)::bigint[]), unnest(sqlc.arg(states)::smallint[])
) AS n (reservation_key, sku, buyer, qty, state);

-- name: TakeStock :exec
UPDATE dblock_stock s
SET available = s.available - n.qty
FROM ROWS FROM (unnest(sqlc.arg(skus)::text[]), unnest(sqlc.arg(qtys)::bigint[])) AS n (sku, qty)
WHERE s.sku = n.sku AND s.bucket = 0;
