-- Each of these is one autocommit statement. See lease.sql. A ticket is locked by its whole key and
-- never by a scan: the next waiter must be the same for all.

-- Notes a batch of calls that wait, in their order.
-- name: Enqueue :execrows
INSERT INTO dblock_ticket (lease_key, handle, member_id, detached, hold_us, label, data)
SELECT ask.lease_key, ask.handle, me.member_id, ask.detached, ask.hold_us, ask.label, NULLIF(ask.data, '')
FROM (
    SELECT m.member_id FROM dblock_member m
    WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= CAST(sqlc.arg(beat) AS SIGNED) + 1 AND m.expires_at > +UTC_TIMESTAMP(6)
) me
STRAIGHT_JOIN ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(nth) AS SIGNED) AS nth, CAST(sqlc.arg(lease_key) AS BINARY) AS lease_key, CAST(sqlc.arg(handle) AS BINARY) AS handle, CAST(sqlc.arg(detached) AS SIGNED) AS detached, CAST(sqlc.arg(hold_us) AS SIGNED) AS hold_us, CAST(sqlc.arg(label) AS BINARY) AS label, CAST(sqlc.arg(data) AS BINARY) AS data
/*dblock:end*/) ask
ON true
ORDER BY ask.nth;

-- name: TicketsOf :many
SELECT q.lease_key, q.ticket, q.handle FROM dblock_ticket q
WHERE q.lease_key IN (sqlc.slice(lease_keys)) AND q.handle IN (sqlc.slice(handles))
LIMIT 18446744073709551615;

-- Keys for which a live member waits.
-- name: QueuedKeys :many
SELECT DISTINCT q.lease_key
FROM dblock_ticket q
JOIN dblock_member m ON m.member_id = q.member_id AND m.expires_at > +UTC_TIMESTAMP(6)
WHERE q.lease_key IN (sqlc.slice(lease_keys)) AND NOT q.served
LIMIT 18446744073709551615;

-- The next waiter of each key, 0 for none: the lowest ticket whose member is alive.
-- name: NextTickets :many
SELECT ask.lease_key, CAST(COALESCE((
    SELECT q.ticket
    FROM dblock_ticket q
    JOIN dblock_member m ON m.member_id = q.member_id AND m.expires_at > +UTC_TIMESTAMP(6)
    WHERE q.lease_key = ask.lease_key AND NOT q.served AND q.handle <> ask.handle
    ORDER BY q.ticket
    LIMIT 1
), 0) AS SIGNED) AS ticket
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(lease_key) AS BINARY) AS lease_key, CAST(sqlc.arg(handle) AS BINARY) AS handle
/*dblock:end*/) ask
LIMIT 18446744073709551615;

-- Passes a key that this process holds to the next waiter, unless readers may have it.
-- name: HandOff :execrows
UPDATE (
    SELECT l.lease_key FROM dblock_lease l FORCE INDEX (PRIMARY)
    WHERE l.lease_key = sqlc.arg(lease_key) AND l.handle = CAST(sqlc.arg(handle) AS BINARY) AND NOT l.shared
    LIMIT 1
    FOR UPDATE SKIP LOCKED
) ours
STRAIGHT_JOIN dblock_ticket n FORCE INDEX (PRIMARY) ON n.lease_key = ours.lease_key
STRAIGHT_JOIN dblock_lease t FORCE INDEX (PRIMARY) ON t.lease_key = ours.lease_key
SET t.token = GREATEST(t.token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6))),
    t.handle = n.handle, t.member_id = IF(n.detached, NULL, n.member_id),
    t.held_until = TIMESTAMPADD(MICROSECOND, NULLIF(n.hold_us, 0), +UTC_TIMESTAMP(6)),
    t.changed_at = +UTC_TIMESTAMP(6), t.label = n.label, t.data = n.data, n.served = true
WHERE n.ticket = CAST(sqlc.arg(ticket) AS SIGNED) AND NOT n.served;

-- Grants a free key to the next waiter.
-- name: Serve :execrows
UPDATE (
    SELECT l.lease_key FROM dblock_lease l FORCE INDEX (PRIMARY)
    WHERE l.lease_key = sqlc.arg(lease_key) AND NOT l.shared
      AND (l.handle IS NULL OR l.member_id = CAST(sqlc.arg(gone) AS BINARY) OR l.held_until <= +UTC_TIMESTAMP(6))
    LIMIT 1
    FOR UPDATE SKIP LOCKED
) free
STRAIGHT_JOIN dblock_ticket n FORCE INDEX (PRIMARY) ON n.lease_key = free.lease_key
STRAIGHT_JOIN dblock_lease t FORCE INDEX (PRIMARY) ON t.lease_key = free.lease_key
SET t.token = GREATEST(t.token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6))),
    t.handle = n.handle, t.member_id = IF(n.detached, NULL, n.member_id),
    t.held_until = TIMESTAMPADD(MICROSECOND, NULLIF(n.hold_us, 0), +UTC_TIMESTAMP(6)),
    t.changed_at = +UTC_TIMESTAMP(6), t.label = n.label, t.data = n.data, n.served = true
WHERE n.ticket = CAST(sqlc.arg(ticket) AS SIGNED) AND NOT n.served;

-- What has become of a call that waits: the key is its own, or another holder's, or free, for
-- example for readers; and whether its ticket is there, and counts. A row that readers may have is
-- no grant: a process of an older version may have served the ticket beside them.
-- name: ReadTicket :one
SELECT CAST(CASE WHEN l.handle = CAST(sqlc.arg(handle) AS BINARY) AND NOT l.shared AND (l.held_until IS NULL OR l.held_until > +UTC_TIMESTAMP(6)) THEN l.token ELSE 0 END AS SIGNED) AS granted,
       CAST(CASE WHEN l.handle IS NOT NULL AND (l.held_until IS NULL OR l.held_until > +UTC_TIMESTAMP(6)) THEN 1 ELSE 0 END AS SIGNED) AS held,
       l.handle, l.shared, l.member_id, l.label, l.token,
       CAST(CASE WHEN l.member_id IS NOT NULL AND (m.member_id IS NULL OR m.expires_at <= +UTC_TIMESTAMP(6)) THEN 1 ELSE 0 END AS SIGNED) AS holder_dead,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, +UTC_TIMESTAMP(6),
            LEAST(COALESCE(l.held_until, m.expires_at), COALESCE(m.expires_at, l.held_until))), 0) AS SIGNED) AS remaining_us,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, +UTC_TIMESTAMP(6), l.held_until), 0) AS SIGNED) AS hold_us,
       EXISTS (
           SELECT 1 FROM dblock_ticket q
           JOIN dblock_member w ON w.member_id = q.member_id AND w.expires_at > +UTC_TIMESTAMP(6)
           WHERE q.lease_key = l.lease_key AND q.ticket = sqlc.arg(ticket) AND q.handle = CAST(sqlc.arg(waiting) AS BINARY) AND NOT q.served
       ) AS waits
FROM dblock_lease l
LEFT JOIN dblock_member m ON m.member_id = l.member_id
WHERE l.lease_key = sqlc.arg(lease_key)
LIMIT 1;

-- Withdraws tickets, each locked by its whole key. The driver repeats the SELECT of ask.
-- name: DropTickets :execrows
DELETE d
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(lease_key) AS BINARY) AS lease_key, CAST(sqlc.arg(ticket) AS SIGNED) AS ticket
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_ticket d FORCE INDEX (PRIMARY) ON d.lease_key = ask.lease_key AND d.ticket = ask.ticket;

-- name: DropTicket :execrows
DELETE FROM dblock_ticket WHERE lease_key = sqlc.arg(lease_key) AND ticket = sqlc.arg(ticket);

-- Tickets that have been served, and those of members that are gone, read without a lock.
-- name: UnusedTickets :many
SELECT q.lease_key, q.ticket
FROM dblock_ticket q
LEFT JOIN dblock_member m ON m.member_id = q.member_id
WHERE m.member_id IS NULL OR q.served
LIMIT ?;
