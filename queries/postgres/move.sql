-- What becomes of reservations that exist.

-- The rows are locked.
-- name: SetReservations :exec
UPDATE dblock_reservation r
SET state = n.state, expires_at = CASE WHEN n.hold_us > 0 THEN clock_timestamp() + n.hold_us * interval '1 microsecond' END
FROM ROWS FROM (
    unnest(sqlc.arg(reservation_keys)::text[]), unnest(sqlc.arg(states)::smallint[]), unnest(sqlc.arg(holds_us)::bigint[])
) AS n (reservation_key, state, hold_us)
WHERE r.reservation_key = n.reservation_key;

-- Rows are locked in their order before they are written.
-- name: UncountQuotas :exec
WITH n AS MATERIALIZED (
    SELECT q.sku, q.buyer, a.qty
    FROM dblock_quota q
    JOIN ROWS FROM (
        unnest(sqlc.arg(skus)::text[]), unnest(sqlc.arg(buyers)::text[]), unnest(sqlc.arg(qtys)::bigint[])
    ) AS a (sku, buyer, qty) ON a.sku = q.sku AND a.buyer = q.buyer
    ORDER BY q.sku, q.buyer
    FOR NO KEY UPDATE OF q
)
UPDATE dblock_quota q
SET used = greatest(0, q.used - n.qty)
FROM n
WHERE q.sku = n.sku AND q.buyer = n.buyer;

-- name: DueReservations :many
SELECT r.reservation_key
FROM dblock_reservation r
WHERE r.state = 1 AND r.line = 0 AND r.expires_at <= clock_timestamp()
ORDER BY r.expires_at
LIMIT sqlc.arg(most)::int;
