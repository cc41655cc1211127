-- Rows are locked in one order everywhere, so that two batches never deadlock: quotas, stock by SKU
-- and bucket, then reservations by key. Reservations that exist are locked first. All quotas that
-- may be missing are made before an existing one is locked. An INSERT waits for the transaction
-- that has the row. An UPDATE never waits for an uncommitted INSERT of it. So transactions that
-- make quotas and those that use them can't deadlock.

-- Those that exist are looked for first: ON CONFLICT would wait for a transaction that has updated
-- one of them.
-- name: AddQuotas :exec
INSERT INTO dblock_quota (sku, buyer, used, most)
SELECT n.sku, n.buyer, 0, 0
FROM ROWS FROM (pg_catalog.unnest(sqlc.arg(skus)::text[]), pg_catalog.unnest(sqlc.arg(buyers)::text[])) AS n (sku, buyer)
WHERE (SELECT true FROM dblock_quota q WHERE q.sku = n.sku AND q.buyer = n.buyer LIMIT 1) IS NULL
ON CONFLICT (sku, buyer) DO NOTHING;

-- They are asked for in their order, and locked one after the other: LIMIT keeps this from becoming
-- a join, which might read the whole table by a plan that was made when it was small.
-- name: LockQuotas :many
SELECT q.sku, q.buyer, q.used
FROM ROWS FROM (pg_catalog.unnest(sqlc.arg(skus)::text[]), pg_catalog.unnest(sqlc.arg(buyers)::text[])) AS n (sku, buyer)
CROSS JOIN LATERAL (
    SELECT q.sku, q.buyer, q.used
    FROM dblock_quota q
    WHERE q.sku = n.sku AND q.buyer = n.buyer
    LIMIT 1
    FOR NO KEY UPDATE
) q;

-- The same, but a row that is locked is left out.
-- name: LockFreeQuotas :many
SELECT q.sku, q.buyer, q.used
FROM ROWS FROM (pg_catalog.unnest(sqlc.arg(skus)::text[]), pg_catalog.unnest(sqlc.arg(buyers)::text[])) AS n (sku, buyer)
CROSS JOIN LATERAL (
    SELECT q.sku, q.buyer, q.used
    FROM dblock_quota q
    WHERE q.sku = n.sku AND q.buyer = n.buyer
    LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED
) q;

-- name: ReadQuotas :many
SELECT q.sku, q.buyer, q.used
FROM ROWS FROM (pg_catalog.unnest(sqlc.arg(skus)::text[]), pg_catalog.unnest(sqlc.arg(buyers)::text[])) AS n (sku, buyer)
CROSS JOIN LATERAL (
    SELECT q.sku, q.buyer, q.used
    FROM dblock_quota q
    WHERE q.sku = n.sku AND q.buyer = n.buyer
    LIMIT 1
) q;

-- name: LockStock :many
SELECT s.sku, s.bucket, s.available
FROM dblock_stock s
WHERE s.sku = ANY (sqlc.arg(skus)::text[])
ORDER BY s.sku, s.bucket
FOR NO KEY UPDATE;

-- name: LockBucket :many
SELECT s.sku, s.bucket, s.available
FROM dblock_stock s
WHERE s.sku = ANY (sqlc.arg(skus)::text[]) AND s.bucket = sqlc.arg(bucket)
ORDER BY s.sku
FOR NO KEY UPDATE;

-- The same, but a row that is locked is left out.
-- name: LockFreeBucket :many
SELECT s.sku, s.bucket, s.available
FROM dblock_stock s
WHERE s.sku = ANY (sqlc.arg(skus)::text[]) AND s.bucket = sqlc.arg(bucket)
ORDER BY s.sku
FOR NO KEY UPDATE SKIP LOCKED;

-- The same as LockStock, but a row that is locked is left out: it would stall the other SKUs of the
-- batch.
-- name: LockFreeStock :many
SELECT s.sku, s.bucket, s.available
FROM dblock_stock s
WHERE s.sku = ANY (sqlc.arg(skus)::text[])
ORDER BY s.sku, s.bucket
FOR NO KEY UPDATE SKIP LOCKED;

-- What is left of each SKU in all its buckets, as committed: no row is locked.
-- name: ReadUnits :many
SELECT s.sku, sum(s.available)::bigint AS units
FROM dblock_stock s
WHERE s.sku = ANY (sqlc.arg(skus)::text[])
GROUP BY s.sku;

-- name: KnownBuckets :many
SELECT s.sku, count(*) AS buckets
FROM dblock_stock s
WHERE s.sku = ANY (sqlc.arg(skus)::text[])
GROUP BY s.sku;

-- left_us is for how many microseconds yet the reservation is held; 0 or less: it has expired, or
-- has no end. unconfirmed: commits wait for synchronous standbys, which may not have the row. See
-- ConfirmCommits.
-- name: Reservations :many
SELECT r.reservation_key, r.line, r.sku, r.bucket, r.buyer, r.qty, r.state, r.limited,
       coalesce(extract(epoch FROM CASE WHEN pg_catalog.isfinite(r.expires_at) THEN r.expires_at - clock_timestamp() END) * 1000000::numeric, 0)::bigint AS left_us,
       (pg_catalog.current_setting('synchronous_standby_names') <> ''::text)::boolean AS unconfirmed
FROM dblock_reservation r
WHERE r.reservation_key = ANY (sqlc.arg(reservation_keys)::text[])
ORDER BY r.reservation_key, r.line;

-- LIMIT keeps keys and lines in their order, of which there are no more.
-- name: LockReservations :many
SELECT r.reservation_key, r.line, r.sku, r.bucket, r.buyer, r.qty, r.state, r.limited, r.left_us
FROM pg_catalog.unnest(sqlc.arg(reservation_keys)::text[]) AS k (reservation_key)
CROSS JOIN LATERAL (
    SELECT r.reservation_key, r.line, r.sku, r.bucket, r.buyer, r.qty, r.state, r.limited,
           coalesce(extract(epoch FROM CASE WHEN pg_catalog.isfinite(r.expires_at) THEN r.expires_at - clock_timestamp() END) * 1000000::numeric, 0)::bigint AS left_us
    FROM dblock_reservation r
    WHERE r.reservation_key = k.reservation_key
    ORDER BY r.line
    LIMIT 1000
    FOR NO KEY UPDATE
) r;

-- The same, but a row that is locked is left out.
-- name: LockFreeReservations :many
SELECT r.reservation_key, r.line, r.sku, r.bucket, r.buyer, r.qty, r.state, r.limited, r.left_us
FROM pg_catalog.unnest(sqlc.arg(reservation_keys)::text[]) AS k (reservation_key)
CROSS JOIN LATERAL (
    SELECT r.reservation_key, r.line, r.sku, r.bucket, r.buyer, r.qty, r.state, r.limited,
           coalesce(extract(epoch FROM CASE WHEN pg_catalog.isfinite(r.expires_at) THEN r.expires_at - clock_timestamp() END) * 1000000::numeric, 0)::bigint AS left_us
    FROM dblock_reservation r
    WHERE r.reservation_key = k.reservation_key
    ORDER BY r.line
    LIMIT 1000
    FOR NO KEY UPDATE SKIP LOCKED
) r;

-- How many lines each reservation has, locked or not.
-- name: KnownLines :many
SELECT r.reservation_key, count(*) AS num_lines
FROM dblock_reservation r
WHERE r.reservation_key = ANY (sqlc.arg(reservation_keys)::text[])
GROUP BY r.reservation_key;

-- name: InsertReservations :exec
INSERT INTO dblock_reservation (reservation_key, line, sku, bucket, buyer, qty, state, limited, expires_at)
SELECT n.reservation_key, n.line, n.sku, n.bucket, n.buyer, n.qty, n.state, n.limited,
       CASE WHEN n.hold_us > 0 THEN clock_timestamp() + n.hold_us::float8 * interval '1 microsecond' END
FROM ROWS FROM (
    pg_catalog.unnest(sqlc.arg(reservation_keys)::text[]), pg_catalog.unnest(sqlc.arg(lines)::int[]), pg_catalog.unnest(sqlc.arg(skus)::text[]),
    pg_catalog.unnest(sqlc.arg(buckets)::int[]), pg_catalog.unnest(sqlc.arg(buyers)::text[]), pg_catalog.unnest(sqlc.arg(qtys)::bigint[]),
    pg_catalog.unnest(sqlc.arg(states)::smallint[]), pg_catalog.unnest(sqlc.arg(limits)::boolean[]), pg_catalog.unnest(sqlc.arg(holds_us)::bigint[])
) AS n (reservation_key, line, sku, bucket, buyer, qty, state, limited, hold_us);

-- Waits for other transactions that write the reservations and have not ended. It is sent with a
-- rollback behind it, and locks no stock.
-- name: AwaitKeys :exec
INSERT INTO dblock_reservation (reservation_key, sku, bucket, buyer, qty, state)
SELECT pg_catalog.unnest(sqlc.arg(reservation_keys)::text[]), pg_catalog.unnest(sqlc.arg(skus)::text[]), pg_catalog.unnest(sqlc.arg(buckets)::int[]),
       pg_catalog.unnest(sqlc.arg(buyers)::text[]), pg_catalog.unnest(sqlc.arg(qtys)::bigint[]), pg_catalog.unnest(sqlc.arg(states)::smallint[])
ON CONFLICT (reservation_key, line) DO NOTHING;

-- Rows that this transaction has locked are written where they stand (ctid): a join by their keys
-- may be planned to read the whole table once for each. The look-ups are those of single keys,
-- which LIMIT keeps from becoming a join. They have to be locked by an earlier statement: a row
-- that was waited for stands elsewhere than where this one's snapshot sees it. Each partition
-- numbers its rows anew, so the key is compared, too; IS TRUE keeps that from being a join.
-- name: TakeStock :exec
UPDATE dblock_stock s
SET available = s.available - n.qty
FROM (
    SELECT place.row_at, a.sku, a.bucket, a.qty
    FROM ROWS FROM (
        pg_catalog.unnest(sqlc.arg(skus)::text[]), pg_catalog.unnest(sqlc.arg(buckets)::int[]), pg_catalog.unnest(sqlc.arg(qtys)::bigint[])
    ) AS a (sku, bucket, qty)
    CROSS JOIN LATERAL (
        SELECT l.ctid AS row_at FROM dblock_stock l WHERE l.sku = a.sku AND l.bucket = a.bucket LIMIT 1
    ) place
) n
WHERE s.ctid = n.row_at AND (s.sku = n.sku AND s.bucket = n.bucket) IS TRUE;

-- The rows are locked: see TakeStock.
-- name: CountQuotas :exec
UPDATE dblock_quota q
SET used = q.used + n.qty, most = n.most
FROM (
    SELECT place.row_at, a.sku, a.buyer, a.qty, a.most
    FROM ROWS FROM (
        pg_catalog.unnest(sqlc.arg(skus)::text[]), pg_catalog.unnest(sqlc.arg(buyers)::text[]), pg_catalog.unnest(sqlc.arg(qtys)::bigint[]),
        pg_catalog.unnest(sqlc.arg(mosts)::bigint[])
    ) AS a (sku, buyer, qty, most)
    CROSS JOIN LATERAL (
        SELECT l.ctid AS row_at FROM dblock_quota l WHERE l.sku = a.sku AND l.buyer = a.buyer LIMIT 1
    ) place
) n
WHERE q.ctid = n.row_at AND (q.sku = n.sku AND q.buyer = n.buyer) IS TRUE;
