-- One statement, so one snapshot: the books are read as they stood at one moment. Of all SKUs, or
-- of those given. state: 1 held, 2 sold. From bucket 1048576 on they are allotments; -1 takes no
-- stock.
-- name: Balances :many
SELECT b.sku                            AS sku,
       CAST(SUM(b.available) AS SIGNED) AS available,
       CAST(SUM(b.allotted) AS SIGNED)  AS allotted,
       CAST(SUM(b.held) AS SIGNED)      AS held,
       CAST(SUM(b.sold) AS SIGNED)      AS sold,
       CAST(SUM(b.restocked) AS SIGNED) AS restocked
FROM (
    SELECT s.sku, CASE WHEN s.bucket < 1048576 THEN s.available ELSE 0 END AS available,
           CASE WHEN s.bucket >= 1048576 THEN s.available ELSE 0 END AS allotted, 0 AS held, 0 AS sold, 0 AS restocked
    FROM dblock_stock s
    WHERE (CAST(sqlc.arg(every) AS SIGNED) = 1 OR s.sku IN (sqlc.slice(skus)))
    UNION ALL
    SELECT r.sku, 0, 0, CASE WHEN r.state = 1 THEN r.qty ELSE 0 END, CASE WHEN r.state = 2 THEN r.qty ELSE 0 END, 0
    FROM dblock_reservation r
    WHERE r.state IN (1, 2) AND r.bucket >= 0 AND (CAST(sqlc.arg(every) AS SIGNED) = 1 OR r.sku IN (sqlc.slice(skus)))
    UNION ALL
    SELECT a.sku, 0, 0, 0, 0, a.delta
    FROM dblock_adjustment a
    WHERE (CAST(sqlc.arg(every) AS SIGNED) = 1 OR a.sku IN (sqlc.slice(skus)))
) b
GROUP BY b.sku
ORDER BY b.sku
LIMIT 18446744073709551615;

-- What is to be added to quotas so that they count what is held and sold.
-- name: QuotaDrifts :many
SELECT d.buyer, CAST(SUM(d.counts) - SUM(d.used) AS SIGNED) AS drift, CAST(SUM(d.counts) AS SIGNED) AS counts
FROM (
    SELECT q.buyer, q.used, 0 AS counts
    FROM dblock_quota q
    WHERE q.sku = sqlc.arg(sku)
    UNION ALL
    SELECT r.buyer, 0 AS used, r.qty AS counts
    FROM dblock_reservation r
    WHERE r.sku = sqlc.arg(of_sku) AND r.limited = true AND r.state IN (1, 2)
) d
GROUP BY d.buyer
HAVING SUM(d.counts) <> SUM(d.used)
ORDER BY d.buyer
LIMIT 18446744073709551615;

-- The SKUs with a quota that does not count what is held and sold, of all SKUs or of those given.
-- They include SKUs without stock.
-- name: WrongQuotas :many
SELECT DISTINCT d.sku
FROM (
    SELECT q.sku, q.buyer, q.used, 0 AS counts
    FROM dblock_quota q
    WHERE (CAST(sqlc.arg(every) AS SIGNED) = 1 OR q.sku IN (sqlc.slice(skus)))
    UNION ALL
    SELECT r.sku, r.buyer, 0 AS used, r.qty AS counts
    FROM dblock_reservation r
    WHERE r.limited = true AND r.state IN (1, 2) AND (CAST(sqlc.arg(every) AS SIGNED) = 1 OR r.sku IN (sqlc.slice(skus)))
) d
GROUP BY d.sku, d.buyer
HAVING SUM(d.counts) <> SUM(d.used)
LIMIT 18446744073709551615;
