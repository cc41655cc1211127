-- One statement, so one snapshot: the books are read as they stood at one moment. Of all SKUs, or
-- of those given. state: 1 held, 2 sold. From bucket 1048576 on they are allotments; -1 takes no
-- stock.
-- name: Balances :many
SELECT b.sku::text              AS sku,
       sum(b.available)::bigint AS available,
       sum(b.allotted)::bigint  AS allotted,
       sum(b.held)::bigint      AS held,
       sum(b.sold)::bigint      AS sold,
       sum(b.restocked)::bigint AS restocked
FROM (
    SELECT s.sku, CASE WHEN s.bucket < 1048576 THEN s.available ELSE 0 END AS available,
           CASE WHEN s.bucket >= 1048576 THEN s.available ELSE 0 END AS allotted, 0 AS held, 0 AS sold, 0 AS restocked
    FROM dblock_stock s
    WHERE sqlc.arg(every)::boolean OR s.sku = ANY (sqlc.arg(skus)::text[])
    UNION ALL
    SELECT r.sku, 0, 0, CASE WHEN r.state = 1 THEN r.qty ELSE 0 END, CASE WHEN r.state = 2 THEN r.qty ELSE 0 END, 0
    FROM dblock_reservation r
    WHERE r.state IN (1, 2) AND r.bucket >= 0 AND (sqlc.arg(every)::boolean OR r.sku = ANY (sqlc.arg(skus)::text[]))
    UNION ALL
    SELECT a.sku, 0, 0, 0, 0, a.delta
    FROM dblock_adjustment a
    WHERE sqlc.arg(every)::boolean OR a.sku = ANY (sqlc.arg(skus)::text[])
) b
GROUP BY b.sku
ORDER BY b.sku;

-- What is to be added to quotas so that they count what is held and sold.
-- name: QuotaDrifts :many
SELECT d.buyer::text AS buyer, (sum(d.counts) - sum(d.used))::bigint AS drift, sum(d.counts)::bigint AS counts
FROM (
    SELECT q.buyer, q.used, 0 AS counts
    FROM dblock_quota q
    WHERE q.sku = sqlc.arg(sku)
    UNION ALL
    SELECT r.buyer, 0, r.qty
    FROM dblock_reservation r
    WHERE r.sku = sqlc.arg(sku) AND r.limited AND r.state IN (1, 2)
) d
GROUP BY d.buyer
HAVING sum(d.counts) <> sum(d.used)
ORDER BY d.buyer;

-- The SKUs with a quota that does not count what is held and sold, of all SKUs or of those given.
-- They include SKUs without stock.
-- name: WrongQuotas :many
SELECT DISTINCT d.sku::text AS sku
FROM (
    SELECT q.sku, q.buyer, q.used, 0 AS counts
    FROM dblock_quota q
    WHERE sqlc.arg(every)::boolean OR q.sku = ANY (sqlc.arg(skus)::text[])
    UNION ALL
    SELECT r.sku, r.buyer, 0, r.qty
    FROM dblock_reservation r
    WHERE r.limited AND r.state IN (1, 2) AND (sqlc.arg(every)::boolean OR r.sku = ANY (sqlc.arg(skus)::text[]))
) d
GROUP BY d.sku, d.buyer
HAVING sum(d.counts) <> sum(d.used);
