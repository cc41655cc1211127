-- One statement, so one snapshot: the books are read as they stood at one moment.
-- state: 1 held, 2 sold.
-- name: Balances :many
SELECT b.sku                            AS sku,
       CAST(SUM(b.available) AS SIGNED) AS available,
       CAST(SUM(b.held) AS SIGNED)      AS held,
       CAST(SUM(b.sold) AS SIGNED)      AS sold,
       CAST(SUM(b.restocked) AS SIGNED) AS restocked
FROM (
    SELECT s.sku, s.available, 0 AS held, 0 AS sold, 0 AS restocked
    FROM dblock_stock s
    UNION ALL
    SELECT r.sku, 0, CASE WHEN r.state = 1 THEN r.qty ELSE 0 END, CASE WHEN r.state = 2 THEN r.qty ELSE 0 END, 0
    FROM dblock_reservation r
    WHERE r.state IN (1, 2)
    UNION ALL
    SELECT a.sku, 0, 0, 0, a.delta
    FROM dblock_adjustment a
) b
GROUP BY b.sku
ORDER BY b.sku;
