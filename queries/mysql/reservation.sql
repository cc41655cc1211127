-- Rows are locked in one order everywhere, so that two batches never deadlock: quotas, stock by SKU
-- and bucket, then reservations by key. Reservations that exist are locked first.

-- Locks rows in their order, and makes those that are missing. It is no INSERT IGNORE: that would
-- lock in shared mode what is there, and two that did so would each wait for the other.
-- name: AddQuotas :exec
INSERT INTO dblock_quota (sku, buyer, used, most)
VALUES /*dblock:rows*/(?, ?, 0, 0)/*dblock:end*/
ON DUPLICATE KEY UPDATE used = dblock_quota.used;

-- The asks are sorted: the rows are locked in that order. Here as below, what is locked is found by
-- its key, one by one. For a list of keys MySQL may read a whole index, and would lock all of it,
-- or wait for it.
-- name: LockQuotas :many
SELECT q.sku, q.buyer, q.used
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(sku) AS BINARY) AS sku, CAST(sqlc.arg(buyer) AS BINARY) AS buyer
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_quota q FORCE INDEX (PRIMARY) ON q.sku = ask.sku AND q.buyer = ask.buyer
LIMIT 18446744073709551615
FOR UPDATE;

-- The same, but a row that is locked is left out.
-- name: LockFreeQuotas :many
SELECT q.sku, q.buyer, q.used
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(sku) AS BINARY) AS sku, CAST(sqlc.arg(buyer) AS BINARY) AS buyer
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_quota q FORCE INDEX (PRIMARY) ON q.sku = ask.sku AND q.buyer = ask.buyer
LIMIT 18446744073709551615
FOR UPDATE SKIP LOCKED;

-- The same, but a row that is locked is an error. A row that another transaction has inserted is
-- locked, too.
-- name: LockQuotasNoWait :many
SELECT q.sku, q.buyer, q.used
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(sku) AS BINARY) AS sku, CAST(sqlc.arg(buyer) AS BINARY) AS buyer
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_quota q FORCE INDEX (PRIMARY) ON q.sku = ask.sku AND q.buyer = ask.buyer
LIMIT 18446744073709551615
FOR UPDATE NOWAIT;

-- name: ReadQuotas :many
SELECT q.sku, q.buyer, q.used
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(sku) AS BINARY) AS sku, CAST(sqlc.arg(buyer) AS BINARY) AS buyer
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_quota q FORCE INDEX (PRIMARY) ON q.sku = ask.sku AND q.buyer = ask.buyer
LIMIT 18446744073709551615;

-- name: LockStock :many
SELECT s.sku, s.bucket, s.available
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(sku) AS BINARY) AS sku
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_stock s FORCE INDEX (PRIMARY) ON s.sku = ask.sku
ORDER BY s.sku, s.bucket
LIMIT 18446744073709551615
FOR UPDATE;

-- name: LockStockNoWait :many
SELECT s.sku, s.bucket, s.available
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(sku) AS BINARY) AS sku
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_stock s FORCE INDEX (PRIMARY) ON s.sku = ask.sku
ORDER BY s.sku, s.bucket
LIMIT 18446744073709551615
FOR UPDATE NOWAIT;

-- name: LockBucket :many
SELECT s.sku, s.bucket, s.available
FROM dblock_stock s FORCE INDEX (PRIMARY)
WHERE s.sku = sqlc.arg(sku) AND s.bucket = sqlc.arg(bucket)
LIMIT 18446744073709551615
FOR UPDATE;

-- What comes back goes into the first bucket.
-- name: LockFirstBuckets :many
SELECT s.sku
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(sku) AS BINARY) AS sku
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_stock s FORCE INDEX (PRIMARY) ON s.sku = ask.sku AND s.bucket = 0
ORDER BY s.sku
LIMIT 18446744073709551615
FOR UPDATE;

-- The same, but a row that is locked is left out.
-- name: LockFreeFirstBuckets :many
SELECT s.sku
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(sku) AS BINARY) AS sku
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_stock s FORCE INDEX (PRIMARY) ON s.sku = ask.sku AND s.bucket = 0
ORDER BY s.sku
LIMIT 18446744073709551615
FOR UPDATE SKIP LOCKED;

-- The same as LockStock, but a row that is locked is left out: it would stall the other SKUs of the
-- batch.
-- name: LockFreeStock :many
SELECT s.sku, s.bucket, s.available
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(sku) AS BINARY) AS sku
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_stock s FORCE INDEX (PRIMARY) ON s.sku = ask.sku
ORDER BY s.sku, s.bucket
LIMIT 18446744073709551615
FOR UPDATE SKIP LOCKED;

-- What is left of each SKU in all its buckets, as committed: no row is locked.
-- name: ReadUnits :many
SELECT s.sku, CAST(SUM(s.available) AS SIGNED) AS units
FROM dblock_stock s
WHERE s.sku IN (sqlc.slice(skus))
GROUP BY s.sku
LIMIT 18446744073709551615;

-- name: KnownBuckets :many
SELECT s.sku, COUNT(*) AS buckets
FROM dblock_stock s
WHERE s.sku IN (sqlc.slice(skus))
GROUP BY s.sku
LIMIT 18446744073709551615;

-- left_us is for how many microseconds yet the reservation is held; 0 or less: it has expired, or
-- has no end.
-- name: Reservations :many
SELECT r.reservation_key, r.line, r.sku, r.bucket, r.buyer, r.qty, r.state, r.limited,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, +UTC_TIMESTAMP(6), r.expires_at), 0) AS SIGNED) AS left_us
FROM dblock_reservation r
WHERE r.reservation_key IN (sqlc.slice(reservation_keys))
ORDER BY r.reservation_key, r.line
LIMIT 18446744073709551615;

-- A statement's time is that of its beginning. This one may wait for a lock, so what it waited
-- counts, too.
-- name: LockReservations :many
SELECT r.reservation_key, r.line, r.sku, r.bucket, r.buyer, r.qty, r.state, r.limited,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, +UTC_TIMESTAMP(6), r.expires_at)
                     - TIMESTAMPDIFF(MICROSECOND, +NOW(6), +SYSDATE(6)), 0) AS SIGNED) AS left_us
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(reservation_key) AS BINARY) AS reservation_key
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_reservation r FORCE INDEX (PRIMARY) ON r.reservation_key = ask.reservation_key
ORDER BY r.reservation_key, r.line
LIMIT 18446744073709551615
FOR UPDATE;

-- The same, but a row that is locked is left out.
-- name: LockFreeReservations :many
SELECT r.reservation_key, r.line, r.sku, r.bucket, r.buyer, r.qty, r.state, r.limited,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, +UTC_TIMESTAMP(6), r.expires_at)
                     - TIMESTAMPDIFF(MICROSECOND, +NOW(6), +SYSDATE(6)), 0) AS SIGNED) AS left_us
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(reservation_key) AS BINARY) AS reservation_key
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_reservation r FORCE INDEX (PRIMARY) ON r.reservation_key = ask.reservation_key
ORDER BY r.reservation_key, r.line
LIMIT 18446744073709551615
FOR UPDATE SKIP LOCKED;

-- Fails if another transaction that has not ended writes one of the reservations.
-- name: LockKeysNoWait :many
SELECT r.reservation_key
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(reservation_key) AS BINARY) AS reservation_key
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_reservation r FORCE INDEX (PRIMARY) ON r.reservation_key = ask.reservation_key
LIMIT 18446744073709551615
FOR UPDATE NOWAIT;

-- How many lines each reservation has, locked or not.
-- name: KnownLines :many
SELECT r.reservation_key, COUNT(*) AS num_lines
FROM dblock_reservation r
WHERE r.reservation_key IN (sqlc.slice(reservation_keys))
GROUP BY r.reservation_key
LIMIT 18446744073709551615;

-- name: InsertReservations :exec
INSERT INTO dblock_reservation (reservation_key, line, sku, bucket, buyer, qty, state, limited, expires_at)
VALUES /*dblock:rows*/(?, ?, ?, ?, ?, ?, ?, ?, TIMESTAMPADD(MICROSECOND, NULLIF(CAST(? AS SIGNED), 0), +UTC_TIMESTAMP(6)))/*dblock:end*/;

-- Every row is there and locked, so nothing
-- is ever inserted: it is the form of an UPDATE that takes many rows with a value each.
-- name: TakeStock :exec
INSERT INTO dblock_stock (sku, bucket, available)
VALUES /*dblock:rows*/(?, ?, ?)/*dblock:end*/
ON DUPLICATE KEY UPDATE available = dblock_stock.available - VALUES(available);

-- The same form. What a batch counts is never more than there may be, so the table's check holds of
-- the values, too.
-- name: CountQuotas :exec
INSERT INTO dblock_quota (sku, buyer, used, most)
VALUES /*dblock:rows*/(?, ?, ?, ?)/*dblock:end*/
ON DUPLICATE KEY UPDATE used = dblock_quota.used + VALUES(used), most = VALUES(most);
