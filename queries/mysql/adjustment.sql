-- name: InsertAdjustment :exec
INSERT INTO dblock_adjustment (adjustment_id, sku, delta)
VALUES (sqlc.arg(adjustment_id), sqlc.arg(sku), sqlc.arg(delta));

-- name: Adjustment :one
SELECT a.sku, a.delta
FROM dblock_adjustment a
WHERE a.adjustment_id = sqlc.arg(adjustment_id);

-- name: AdjustStock :execrows
UPDATE dblock_stock s
SET s.available = s.available + sqlc.arg(delta), s.epoch = s.epoch + 1
WHERE s.sku = sqlc.arg(sku) AND s.bucket = 0 AND s.available >= sqlc.arg(least);

-- name: InsertStock :exec
INSERT INTO dblock_stock (sku, available)
VALUES (sqlc.arg(sku), sqlc.arg(available));
