-- Rows are locked in the order of their SKU and bucket, so that two batches never wait for each
-- other.
-- name: LockStock :many
SELECT s.sku, s.bucket, s.available
FROM dblock_stock s
WHERE s.sku IN (sqlc.slice(skus))
ORDER BY s.sku, s.bucket
FOR UPDATE;

-- The same, but a row that is locked is left out: it would stall the other SKUs of the batch.
-- name: LockFreeStock :many
SELECT s.sku, s.bucket, s.available
FROM dblock_stock s
WHERE s.sku IN (sqlc.slice(skus))
ORDER BY s.sku, s.bucket
FOR UPDATE SKIP LOCKED;

-- name: KnownBuckets :many
SELECT s.sku, COUNT(*) AS buckets
FROM dblock_stock s
WHERE s.sku IN (sqlc.slice(skus))
GROUP BY s.sku;

-- name: Reservations :many
SELECT r.reservation_key, r.sku, r.buyer, r.qty, r.state
FROM dblock_reservation r
WHERE r.reservation_key IN (sqlc.slice(reservation_keys)) AND r.line = 0;

-- The engine repeats the row for each reservation of a batch.
-- name: InsertReservations :exec
INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state)
VALUES (?, ?, ?, ?, ?);

-- The engine repeats the row for each bucket of a batch. Every row is there and locked, so nothing
-- is ever inserted: it is the form of an UPDATE that takes many rows with a value each.
-- name: TakeStock :exec
INSERT INTO dblock_stock (sku, bucket, available)
VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE available = dblock_stock.available - VALUES(available);
