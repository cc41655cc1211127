-- What becomes of reservations that exist.

-- name: DueReservations :many
SELECT r.reservation_key
FROM dblock_reservation r
WHERE r.state = 1 AND r.line = 0 AND r.expires_at <= clock_timestamp()
ORDER BY r.expires_at
LIMIT sqlc.arg(most)::int;
