-- Each order is sold in a transaction of its own; no statement here writes to two tables.

-- name: TakeOne :execrows
UPDATE dblock_stock s
SET s.available = s.available - sqlc.arg(qty)
WHERE s.sku = sqlc.arg(sku) AND s.bucket = sqlc.arg(bucket) AND s.available >= sqlc.arg(least);

-- name: HoldNoWait :many
SELECT s.bucket
FROM dblock_stock s
WHERE s.sku = sqlc.arg(sku) AND s.bucket = 0 AND s.available >= sqlc.arg(least)
FOR UPDATE NOWAIT;

-- A bucket that is free and has enough, from one on that the caller draws, or all would begin with
-- the same. The primary key is read in its order: sorted, every bucket that is read would be locked.
-- name: HoldFreeFrom :many
SELECT s.bucket
FROM dblock_stock s
WHERE s.sku = sqlc.arg(sku) AND s.bucket >= sqlc.arg(first_bucket) AND s.available >= sqlc.arg(least)
ORDER BY s.bucket
LIMIT 1
FOR UPDATE SKIP LOCKED;

-- name: HoldFreeBefore :many
SELECT s.bucket
FROM dblock_stock s
WHERE s.sku = sqlc.arg(sku) AND s.bucket < sqlc.arg(first_bucket) AND s.available >= sqlc.arg(least)
ORDER BY s.bucket
LIMIT 1
FOR UPDATE SKIP LOCKED;

-- name: BucketsWith :one
SELECT COUNT(*) AS buckets
FROM dblock_stock s
WHERE s.sku = sqlc.arg(sku) AND s.available >= sqlc.arg(least);

-- available falls with each sale, and epoch grows whenever it rises: a row in which both are the
-- same has not changed.
-- name: SeeStock :one
SELECT s.available, s.epoch
FROM dblock_stock s
WHERE s.sku = sqlc.arg(sku) AND s.bucket = 0;

-- name: TakeSeen :execrows
UPDATE dblock_stock s
SET s.available = sqlc.arg(left_after)
WHERE s.sku = sqlc.arg(sku) AND s.bucket = 0 AND s.available = sqlc.arg(seen_available) AND s.epoch = sqlc.arg(seen_epoch);
