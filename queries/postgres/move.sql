-- What becomes of reservations that exist.

-- All lines of each. The rows are locked: see TakeStock.
-- name: SetReservations :exec
UPDATE dblock_reservation r
SET state = n.state, expires_at = CASE WHEN n.hold_us > 0 THEN clock_timestamp() + n.hold_us::float8 * interval '1 microsecond' END
FROM (
    SELECT place.row_at, a.reservation_key, a.state, a.hold_us
    FROM ROWS FROM (
        pg_catalog.unnest(sqlc.arg(reservation_keys)::text[]), pg_catalog.unnest(sqlc.arg(states)::smallint[]), pg_catalog.unnest(sqlc.arg(holds_us)::bigint[])
    ) AS a (reservation_key, state, hold_us)
    CROSS JOIN LATERAL (
        SELECT l.ctid AS row_at FROM dblock_reservation l WHERE l.reservation_key = a.reservation_key LIMIT 1000
    ) place
) n
WHERE r.ctid = n.row_at AND (r.reservation_key = n.reservation_key) IS TRUE;

-- The rows are locked: see TakeStock.
-- name: UncountQuotas :exec
UPDATE dblock_quota q
SET used = greatest(0, q.used - n.qty)
FROM (
    SELECT place.row_at, a.sku, a.buyer, a.qty
    FROM ROWS FROM (
        pg_catalog.unnest(sqlc.arg(skus)::text[]), pg_catalog.unnest(sqlc.arg(buyers)::text[]), pg_catalog.unnest(sqlc.arg(qtys)::bigint[])
    ) AS a (sku, buyer, qty)
    CROSS JOIN LATERAL (
        SELECT l.ctid AS row_at FROM dblock_quota l WHERE l.sku = a.sku AND l.buyer = a.buyer LIMIT 1
    ) place
) n
WHERE q.ctid = n.row_at AND (q.sku = n.sku AND q.buyer = n.buyer) IS TRUE;

-- A moment that is the same for all of a statement bounds the scan of the index; clock_timestamp()
-- would read all that is held. A key is found by the first of its lines that is there: line 0 may
-- have been deleted.
-- name: DueReservations :many
SELECT r.reservation_key, (SELECT count(*) FROM dblock_reservation a WHERE a.reservation_key = r.reservation_key) AS num_lines
FROM dblock_reservation r
WHERE r.state = 1 AND r.expires_at <= statement_timestamp() AND (r.line = 0 OR NOT EXISTS (
    SELECT 1 FROM dblock_reservation l WHERE l.reservation_key = r.reservation_key AND l.line < r.line
))
ORDER BY r.expires_at
LIMIT sqlc.arg(most)::int;

-- The lines of that which count against limits of some buyers.
-- name: DueOf :many
SELECT due.reservation_key, due.sku, due.buyer
FROM (
    SELECT r.reservation_key, r.sku, r.buyer, r.limited
    FROM dblock_reservation r
    WHERE r.state = 1 AND r.expires_at <= statement_timestamp()
    ORDER BY r.expires_at
    LIMIT sqlc.arg(most)::int
) due
WHERE due.limited AND due.buyer = ANY (sqlc.arg(buyers)::text[]);
