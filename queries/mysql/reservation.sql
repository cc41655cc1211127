-- name: InsertReservation :exec
INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state)
VALUES (sqlc.arg(reservation_key), sqlc.arg(sku), sqlc.arg(buyer), sqlc.arg(qty), 2);

-- name: TakeOne :execrows
UPDATE dblock_stock s
SET s.available = s.available - sqlc.arg(qty)
WHERE s.sku = sqlc.arg(sku) AND s.bucket = 0 AND s.available >= sqlc.arg(least);

-- Rows are locked in the order of their SKU, so that two batches never wait for each other.
-- name: LockStock :many
SELECT s.sku, s.available
FROM dblock_stock s
WHERE s.sku IN (sqlc.slice(skus)) AND s.bucket = 0
ORDER BY s.sku
FOR UPDATE;

-- The same, but a row that is locked is left out: it would stall the other SKUs of the batch.
-- name: LockFreeStock :many
SELECT s.sku, s.available
FROM dblock_stock s
WHERE s.sku IN (sqlc.slice(skus)) AND s.bucket = 0
ORDER BY s.sku
FOR UPDATE SKIP LOCKED;

-- name: KnownSKUs :many
SELECT s.sku
FROM dblock_stock s
WHERE s.sku IN (sqlc.slice(skus)) AND s.bucket = 0;

-- name: Reservations :many
SELECT r.reservation_key, r.sku, r.buyer, r.qty, r.state
FROM dblock_reservation r
WHERE r.reservation_key IN (sqlc.slice(reservation_keys)) AND r.line = 0;

-- The engine repeats the row for each reservation of a batch.
-- name: InsertReservations :exec
INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state)
VALUES (?, ?, ?, ?, ?);

-- The engine repeats the row for each SKU of a batch. Every row is there and locked, so nothing
-- is ever inserted: it is the form of an UPDATE that takes many rows with a value each.
-- name: TakeStock :exec
INSERT INTO dblock_stock (sku, available)
VALUES (?, ?)
ON DUPLICATE KEY UPDATE available = dblock_stock.available - VALUES(available);
