-- name: InsertAdjustment :exec
INSERT INTO dblock_adjustment (adjustment_id, sku, delta)
VALUES (sqlc.arg(adjustment_id), sqlc.arg(sku), sqlc.arg(delta));

-- name: Adjustment :one
SELECT a.sku, a.delta
FROM dblock_adjustment a
WHERE a.adjustment_id = sqlc.arg(adjustment_id)
LIMIT 1;

-- name: AdjustStock :execrows
UPDATE dblock_stock s
SET s.available = s.available + sqlc.arg(delta), s.epoch = s.epoch + 1
WHERE s.sku = sqlc.arg(sku) AND s.bucket = 0 AND s.available >= sqlc.arg(least);

-- Missing rows are created.
-- name: AddStock :exec
INSERT INTO dblock_stock (sku, bucket, available)
VALUES /*dblock:rows*/(?, ?, ?)/*dblock:end*/
ON DUPLICATE KEY UPDATE available = dblock_stock.available + VALUES(available), epoch = dblock_stock.epoch + 1;

-- name: Allotted :many
SELECT s.sku, s.bucket, s.available
FROM dblock_stock s
WHERE s.bucket >= 1048576 AND s.available > 0
ORDER BY s.bucket, s.sku
LIMIT 18446744073709551615;
