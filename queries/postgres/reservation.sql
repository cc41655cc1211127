-- Rows are locked in the order of their SKU and bucket, so that two batches never wait for each
-- other.
-- name: LockStock :many
SELECT s.sku, s.bucket, s.available
FROM dblock_stock s
WHERE s.sku = ANY (sqlc.arg(skus)::text[])
ORDER BY s.sku, s.bucket
FOR NO KEY UPDATE;

-- The same, but a row that is locked is left out: it would stall the other SKUs of the batch.
-- name: LockFreeStock :many
SELECT s.sku, s.bucket, s.available
FROM dblock_stock s
WHERE s.sku = ANY (sqlc.arg(skus)::text[])
ORDER BY s.sku, s.bucket
FOR NO KEY UPDATE SKIP LOCKED;

-- name: KnownBuckets :many
SELECT s.sku, count(*) AS buckets
FROM dblock_stock s
WHERE s.sku = ANY (sqlc.arg(skus)::text[])
GROUP BY s.sku;

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
FROM ROWS FROM (
    unnest(sqlc.arg(skus)::text[]), unnest(sqlc.arg(buckets)::int[]), unnest(sqlc.arg(qtys)::bigint[])
) AS n (sku, bucket, qty)
WHERE s.sku = n.sku AND s.bucket = n.bucket;
