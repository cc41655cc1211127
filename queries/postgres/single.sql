-- Each of these sells outright, in autocommit: one round trip and one flush. Nothing is written
-- where too little is left. What bounds the wait for a lock is set inside the statement, so that it
-- holds behind a pooler too and ends with it. What sells a batch is sent behind a statement that
-- does so, in the same transaction.

-- The stock comes first, so that nothing is written where there is too little. While it is locked,
-- an order that another transaction is writing is waited for only so long: that may be a batch that
-- has written its orders and waits for the stock.
-- name: SellOne :execrows
WITH bound AS MATERIALIZED (
    SELECT pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) AS lock_timeout
), taken AS (
    UPDATE dblock_stock s
    SET available = s.available - sqlc.arg(qty)
    FROM bound
    WHERE s.sku = sqlc.arg(sku) AND s.bucket = 0 AND s.available >= sqlc.arg(qty)
      AND bound.lock_timeout IS NOT NULL
    RETURNING s.sku, s.bucket
)
INSERT INTO dblock_reservation (reservation_key, sku, bucket, buyer, qty, state, limited, expires_at)
SELECT sqlc.arg(reservation_key), taken.sku, taken.bucket, sqlc.arg(buyer), sqlc.arg(qty), sqlc.arg(state), false,
       CASE WHEN sqlc.arg(hold_us)::bigint > 0 THEN clock_timestamp() + sqlc.arg(hold_us)::bigint::float8 * interval '1 microsecond' END
FROM taken
WHERE pg_catalog.set_config('lock_timeout', sqlc.arg(key_timeout), true) IS NOT NULL;

-- All orders of a batch, of one SKU and without a limit, or none. These are sent together, in one
-- round trip and one transaction, the stock last: if too little is left the table's check fails. So
-- the stock is locked for the flush alone, and the next batch can be written meanwhile. If there is
-- no such stock the orders fail, for their SKU is NULL then. It may be created before the statement
-- that takes from it, and is never deleted. (unnest in the select list takes a tenth less time than
-- in FROM, which keeps all rows in a store first; and one statement for all would keep what the
-- others return.)
-- name: InsertOrders :exec
INSERT INTO dblock_reservation (reservation_key, sku, bucket, buyer, qty, state, limited, expires_at)
SELECT pg_catalog.unnest(sqlc.arg(reservation_keys)::text[]),
       (SELECT s.sku FROM dblock_stock s WHERE s.sku = sqlc.arg(sku) AND s.bucket = sqlc.arg(bucket)), sqlc.arg(bucket)::int,
       pg_catalog.unnest(sqlc.arg(buyers)::text[]), pg_catalog.unnest(sqlc.arg(qtys)::bigint[]), sqlc.arg(state)::smallint, sqlc.arg(limited)::boolean,
       CASE WHEN sqlc.arg(hold_us)::bigint > 0 THEN clock_timestamp() + sqlc.arg(hold_us)::bigint::float8 * interval '1 microsecond' END;

-- Of buyers, each given once: a quota that exists fails the batch. (That takes half the time of ON
-- CONFLICT.) They are inserted in their order, so that two batches of an SKU never deadlock.
-- name: InsertQuotas :exec
INSERT INTO dblock_quota (sku, buyer, used, most)
SELECT sqlc.arg(sku)::text, n.buyer, n.qty, sqlc.arg(most)::bigint
FROM ROWS FROM (pg_catalog.unnest(sqlc.arg(buyers)::text[]), pg_catalog.unnest(sqlc.arg(qtys)::bigint[])) AS n (buyer, qty)
ORDER BY n.buyer COLLATE "C";

-- name: TakeBatch :one
UPDATE dblock_stock s
SET available = s.available - sqlc.arg(qty)
WHERE s.sku = sqlc.arg(sku) AND s.bucket = sqlc.arg(bucket)
RETURNING s.available;

-- Sells all orders of a batch but those that are recorded, or over their buyer's limit (0: there is
-- none). These are returned, and the others are sold, or none. What is recorded is looked up first,
-- key by key: a join might read the whole table, by a plan that was made when it was small. If
-- another transaction writes one of these keys at this moment, the statement fails. Quotas come
-- before orders, and of a buyer's all count or none. They are made and locked in one pass, in the
-- order of buyers, so that two batches of an SKU never deadlock.
-- name: SellNew :one
WITH fresh AS MATERIALIZED (
    SELECT a.reservation_key, a.buyer, a.qty
    FROM ROWS FROM (
        pg_catalog.unnest(sqlc.arg(reservation_keys)::text[]), pg_catalog.unnest(sqlc.arg(buyers)::text[]), pg_catalog.unnest(sqlc.arg(qtys)::bigint[])
    ) AS a (reservation_key, buyer, qty)
    WHERE (SELECT r.line FROM dblock_reservation r WHERE r.reservation_key = a.reservation_key LIMIT 1) IS NULL
      AND EXISTS (SELECT 1 FROM dblock_stock s WHERE s.sku = sqlc.arg(sku) AND s.bucket = sqlc.arg(bucket))
), counted AS (
    INSERT INTO dblock_quota AS q (sku, buyer, used, most)
    SELECT sqlc.arg(sku), f.buyer, sum(f.qty), sqlc.arg(most)
    FROM fresh f
    WHERE sqlc.arg(most)::bigint > 0
    GROUP BY f.buyer
    HAVING sum(f.qty) <= sqlc.arg(most)::bigint::numeric
    ORDER BY f.buyer COLLATE "C"
    ON CONFLICT (sku, buyer) DO UPDATE SET used = q.used + excluded.used, most = excluded.most
    WHERE q.used + excluded.used <= excluded.most
    RETURNING q.buyer
), sold AS (
    INSERT INTO dblock_reservation (reservation_key, sku, bucket, buyer, qty, state, limited, expires_at)
    SELECT f.reservation_key, sqlc.arg(sku), sqlc.arg(bucket), f.buyer, f.qty, sqlc.arg(state)::smallint,
           sqlc.arg(most)::bigint > 0,
           CASE WHEN sqlc.arg(hold_us)::bigint > 0 THEN clock_timestamp() + sqlc.arg(hold_us)::bigint::float8 * interval '1 microsecond' END
    FROM fresh f
    WHERE sqlc.arg(most)::bigint = 0 OR f.buyer IN (SELECT c.buyer FROM counted c)
    RETURNING reservation_key, qty
), taken AS (
    UPDATE dblock_stock s
    SET available = s.available - (SELECT sum(sold.qty)::bigint FROM sold)
    WHERE s.sku = sqlc.arg(sku) AND s.bucket = sqlc.arg(bucket) AND EXISTS (SELECT 1 FROM sold)
    RETURNING s.available
)
SELECT coalesce((SELECT t.available FROM taken t), -1)::bigint AS available,
       CASE WHEN (SELECT count(*) FROM sold) < pg_catalog.cardinality(sqlc.arg(reservation_keys)::text[]) THEN
           ARRAY(SELECT a.k FROM pg_catalog.unnest(sqlc.arg(reservation_keys)::text[]) AS a (k)
                 WHERE a.k NOT IN (SELECT sold.reservation_key FROM sold))
       END::text[] AS unsold;
