-- What becomes of reservations that exist.

-- The rows are locked.
-- name: SetReservations :exec
UPDATE ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(reservation_key) AS BINARY) AS reservation_key, CAST(sqlc.arg(state) AS SIGNED) AS state, CAST(sqlc.arg(hold_us) AS SIGNED) AS hold_us
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_reservation r FORCE INDEX (PRIMARY) ON r.reservation_key = ask.reservation_key
SET r.state = ask.state, r.expires_at = TIMESTAMPADD(MICROSECOND, NULLIF(ask.hold_us, 0), +UTC_TIMESTAMP(6));

-- Rows are locked in the order of the values. The quantity stands in most, for the table's check
-- to hold of the values. Every row is there.
-- name: UncountQuotas :exec
INSERT INTO dblock_quota (sku, buyer, used, most)
VALUES /*dblock:rows*/(?, ?, 0, ?)/*dblock:end*/
ON DUPLICATE KEY UPDATE used = GREATEST(0, dblock_quota.used - VALUES(most));

-- A key is found by the first of its lines that is there: line 0 may have been deleted.
-- name: DueReservations :many
SELECT r.reservation_key, (SELECT count(*) FROM dblock_reservation a WHERE a.reservation_key = r.reservation_key) AS num_lines
FROM dblock_reservation r
WHERE r.state = 1 AND r.expires_at <= +UTC_TIMESTAMP(6) AND (r.line = 0 OR NOT EXISTS (
    SELECT 1 FROM dblock_reservation l WHERE l.reservation_key = r.reservation_key AND l.line < r.line
))
ORDER BY r.expires_at
LIMIT ?;

-- The lines of that which count against limits of some buyers.
-- name: DueOf :many
SELECT due.reservation_key, due.sku, due.buyer
FROM (
    SELECT r.reservation_key, r.sku, r.buyer, r.limited
    FROM dblock_reservation r
    WHERE r.state = 1 AND r.expires_at <= +UTC_TIMESTAMP(6)
    ORDER BY r.expires_at
    LIMIT ?
) due
WHERE due.limited AND due.buyer IN (sqlc.slice(buyers))
LIMIT 18446744073709551615;
