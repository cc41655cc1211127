-- Each order is sold in a transaction of its own; no statement here writes to two tables.

-- name: TakeOne :execrows
UPDATE dblock_stock s
SET s.available = s.available - sqlc.arg(qty)
WHERE s.sku = sqlc.arg(sku) AND s.bucket = 0 AND s.available >= sqlc.arg(least);

-- name: HoldNoWait :many
SELECT s.bucket
FROM dblock_stock s
WHERE s.sku = sqlc.arg(sku) AND s.bucket = 0 AND s.available >= sqlc.arg(least)
LIMIT 18446744073709551615
FOR UPDATE NOWAIT;
