-- name: InsertAdjustment :exec
INSERT INTO dblock_adjustment (adjustment_id, sku, delta)
VALUES (sqlc.arg(adjustment_id), sqlc.arg(sku), sqlc.arg(delta));

-- name: Adjustment :one
SELECT a.sku, a.delta
FROM dblock_adjustment a
WHERE a.adjustment_id = sqlc.arg(adjustment_id);

-- name: AdjustStock :execrows
UPDATE dblock_stock s
SET available = s.available + sqlc.arg(delta), epoch = s.epoch + 1
WHERE s.sku = sqlc.arg(sku) AND s.bucket = 0 AND s.available >= sqlc.arg(least);

-- Rows that are missing come into being.
-- name: AddStock :exec
INSERT INTO dblock_stock AS s (sku, bucket, available)
SELECT n.sku, n.bucket, n.qty
FROM ROWS FROM (
    unnest(sqlc.arg(skus)::text[]), unnest(sqlc.arg(buckets)::int[]), unnest(sqlc.arg(qtys)::bigint[])
) AS n (sku, bucket, qty)
ON CONFLICT (sku, bucket) DO UPDATE SET available = s.available + excluded.available, epoch = s.epoch + 1;
