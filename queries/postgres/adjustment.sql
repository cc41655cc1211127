-- name: InsertAdjustment :exec
INSERT INTO dblock_adjustment (adjustment_id, sku, delta)
VALUES (sqlc.arg(adjustment_id), sqlc.arg(sku), sqlc.arg(delta));

-- name: Adjustment :one
SELECT a.sku, a.delta,
       (pg_catalog.current_setting('synchronous_standby_names') <> ''::text)::boolean AS unconfirmed
FROM dblock_adjustment a
WHERE a.adjustment_id = sqlc.arg(adjustment_id);

-- name: AdjustStock :execrows
UPDATE dblock_stock s
SET available = s.available + sqlc.arg(delta), epoch = s.epoch + 1
WHERE s.sku = sqlc.arg(sku) AND s.bucket = 0 AND s.available >= sqlc.arg(least);

-- Missing rows are created.
-- name: AddStock :exec
INSERT INTO dblock_stock AS s (sku, bucket, available)
SELECT n.sku, n.bucket, n.qty
FROM ROWS FROM (
    pg_catalog.unnest(sqlc.arg(skus)::text[]), pg_catalog.unnest(sqlc.arg(buckets)::int[]), pg_catalog.unnest(sqlc.arg(qtys)::bigint[])
) AS n (sku, bucket, qty)
ON CONFLICT (sku, bucket) DO UPDATE SET available = s.available + excluded.available, epoch = s.epoch + 1;

-- Moves units of a bucket to another one, or all that are left. The rows are locked in the order of
-- their numbers.
-- name: Allot :one
WITH bound AS MATERIALIZED (
    SELECT pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) AS lock_timeout
), there AS MATERIALIZED (
    SELECT s.sku, least(s.available, sqlc.arg(units)::bigint)::bigint AS moved
    FROM dblock_stock s, bound
    WHERE s.sku = sqlc.arg(sku) AND s.bucket = 0 AND s.available > 0 AND bound.lock_timeout IS NOT NULL
    FOR NO KEY UPDATE OF s
), taken AS (
    UPDATE dblock_stock s
    SET available = s.available - there.moved
    FROM there
    WHERE s.sku = there.sku AND s.bucket = 0
    RETURNING s.sku, there.moved
)
INSERT INTO dblock_stock AS own (sku, bucket, available)
SELECT taken.sku, sqlc.arg(bucket), taken.moved
FROM taken
ON CONFLICT (sku, bucket) DO UPDATE SET available = own.available + excluded.available, epoch = own.epoch + 1
RETURNING own.available;

-- name: Allotted :many
SELECT s.sku, s.bucket, s.available
FROM dblock_stock s
WHERE s.bucket >= 1048576 AND s.available > 0
ORDER BY s.bucket, s.sku;
