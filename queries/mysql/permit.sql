-- Each of these is one autocommit statement. See lease.sql.

-- Grants a batch of requests for permits of one semaphore. Each permit is a row. A free one is
-- locked, and then belongs to this request, whatever others see at the same time; those that are
-- locked are passed over. They are counted when they are locked. Those held past the number, from
-- when there were more, count: as many are locked besides and left free, and so the engine has to
-- know how many there are. One of these that is locked counts as held. A semaphore that is locked
-- is passed over. Each ask has all of its range of them, or none, and so those that are granted
-- come first. All that are granted have the same token, the statement's insert id. It is larger
-- than the latest of these permits' tokens; MAX(...) OVER () in the place of FIRST_VALUE takes
-- quadratic time on MariaDB.
-- name: AcquirePermits :execresult
INSERT INTO dblock_permit (lease_key, slot, token, handle, together, member_id, held_until, label, data)
SELECT free.lease_key, free.slot, GREATEST(free.latest + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6))), free.handle, free.permits,
       NULLIF(free.member_id, ''), TIMESTAMPADD(MICROSECOND, NULLIF(free.hold_us, 0), +UTC_TIMESTAMP(6)), free.label, NULLIF(free.data, '')
FROM (
    SELECT nth.lease_key, nth.slot, nth.latest, ask.handle, ask.permits, ask.label, ask.data, ask.hold_us, ask.member_id
    FROM (
        SELECT f.lease_key, f.slot, ROW_NUMBER() OVER (ORDER BY f.slot) AS n, COUNT(*) OVER () - f.beyond AS have, FIRST_VALUE(f.token) OVER (ORDER BY f.token DESC) AS latest
        FROM (
            SELECT p.lease_key, p.slot, p.token, sema.beyond
            FROM (
                SELECT m.member_id FROM dblock_member m
                WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= CAST(sqlc.arg(beat) AS SIGNED) + 1 AND m.expires_at > +UTC_TIMESTAMP(6)
            ) me
            STRAIGHT_JOIN (
                SELECT s.lease_key, s.permits, (
                    SELECT COUNT(*) FROM dblock_permit h WHERE h.lease_key = s.lease_key AND h.slot > s.permits
                ) - (
                    SELECT COUNT(*) FROM dblock_permit g
                    WHERE g.lease_key = s.lease_key AND g.slot > s.permits AND (g.handle IS NULL OR g.held_until <= +UTC_TIMESTAMP(6))
                    /*!80000 FOR SHARE */ /*M! LOCK IN SHARE MODE */ SKIP LOCKED
                ) AS beyond
                FROM dblock_semaphore s WHERE s.lease_key = sqlc.arg(lease_key) AND s.permits = sqlc.arg(limited_to)
                /*!80000 FOR SHARE */ /*M! LOCK IN SHARE MODE */ SKIP LOCKED
            ) sema
            STRAIGHT_JOIN dblock_permit p FORCE INDEX (PRIMARY) ON p.lease_key = sema.lease_key
            WHERE p.slot <= sema.permits AND (p.handle IS NULL OR p.held_until <= +UTC_TIMESTAMP(6))
              AND p.token < 9223372036854775807 -- else it could not grow, and no other permit would be granted
            ORDER BY p.slot
            LIMIT ?
            FOR UPDATE SKIP LOCKED
        ) f
    ) nth
    JOIN ( /*dblock:asks*/
        SELECT CAST(sqlc.arg(handle) AS BINARY) AS handle, CAST(sqlc.arg(past) AS SIGNED) AS past, CAST(sqlc.arg(permits) AS SIGNED) AS permits, CAST(sqlc.arg(keeper) AS BINARY) AS member_id, CAST(sqlc.arg(hold_us) AS SIGNED) AS hold_us, CAST(sqlc.arg(label) AS BINARY) AS label, CAST(sqlc.arg(data) AS BINARY) AS data
    /*dblock:end*/) ask
    ON nth.n > ask.past AND nth.n <= ask.past + ask.permits AND ask.past + ask.permits <= nth.have
    LIMIT 1000000
) free
ON DUPLICATE KEY UPDATE
    token = LAST_INSERT_ID((9223372036854775807 + (TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) > CAST(sqlc.arg(bound_us) AS SIGNED))) - 9223372036854775807 + VALUES(token)),
    handle = VALUES(handle), together = VALUES(together), member_id = VALUES(member_id),
    held_until = VALUES(held_until), changed_at = +UTC_TIMESTAMP(6), label = VALUES(label), data = VALUES(data);

-- A semaphore's number, how many of its permits are free, and the holders of the others, a row
-- each. Without a lock: it grants nothing.
-- name: ReadPermits :many
SELECT CAST(seen.limited_to AS SIGNED) AS limited_to, CAST(seen.held AS SIGNED) AS held, CAST(seen.usable AS SIGNED) AS usable, CAST(seen.beyond AS SIGNED) AS beyond,
       CAST(seen.token AS SIGNED) AS token, seen.member_id, seen.label,
       EXISTS (
           SELECT 1 FROM dblock_member me
           WHERE me.member_id = sqlc.arg(member_id) AND me.beat <= CAST(sqlc.arg(beat) AS SIGNED) + 1 AND me.expires_at > +UTC_TIMESTAMP(6)
       ) AS alive,
       CAST(CASE WHEN seen.member_id IS NOT NULL AND (m.member_id IS NULL OR m.expires_at <= +UTC_TIMESTAMP(6)) THEN 1 ELSE 0 END AS SIGNED) AS holder_dead,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, +UTC_TIMESTAMP(6),
            LEAST(COALESCE(seen.held_until, m.expires_at), COALESCE(m.expires_at, seen.held_until))), 0) AS SIGNED) AS remaining_us
FROM (
    SELECT s.permits AS limited_to, p.handle IS NOT NULL AND (p.held_until IS NULL OR p.held_until > +UTC_TIMESTAMP(6)) AS held,
           SUM(p.slot <= s.permits) AS usable, SUM(p.slot > s.permits) AS beyond, MAX(p.token) AS token, p.member_id, p.label, MIN(p.held_until) AS held_until
    FROM dblock_semaphore s
    JOIN dblock_permit p ON p.lease_key = s.lease_key
    WHERE s.lease_key = sqlc.arg(lease_key)
    GROUP BY 1, 2, 6, 7
) seen
LEFT JOIN dblock_member m ON m.member_id = seen.member_id
LIMIT 18446744073709551615;

-- name: LatestPermit :one
SELECT CAST(COALESCE(MAX(p.slot), 0) AS SIGNED) AS slot FROM dblock_permit p WHERE p.lease_key = sqlc.arg(lease_key)
LIMIT 1;

-- Makes what is missing of a semaphore's permits. They are made before the semaphore, so that each
-- reader of it finds them all.
-- name: InsertPermits :exec
INSERT IGNORE INTO dblock_permit (lease_key, slot) VALUES /*dblock:rows*/(sqlc.arg(lease_key), sqlc.arg(slot))/*dblock:end*/;

-- name: InsertSemaphore :exec
INSERT IGNORE INTO dblock_semaphore (lease_key, permits) VALUES (sqlc.arg(lease_key), sqlc.arg(permits));

-- Gives a semaphore another number of permits. It waits for acquisitions under way, which lock the
-- row in shared mode.
-- name: SetPermits :exec
INSERT INTO dblock_semaphore (lease_key, permits) VALUES (sqlc.arg(lease_key), sqlc.arg(permits))
ON DUPLICATE KEY UPDATE permits = VALUES(permits), changed_at = +UTC_TIMESTAMP(6);

-- Which permits are those of some acquisitions, read without a lock: to look for them with one
-- would lock those of others, too.
-- name: PermitSlots :many
SELECT p.lease_key, p.slot, p.token, p.handle
FROM dblock_permit p
WHERE p.lease_key IN (sqlc.slice(lease_keys)) AND p.handle IN (sqlc.slice(handles))
LIMIT 18446744073709551615;

-- Which permits members have that are gone for good, or whose time is up.
-- name: EndedPermits :many
SELECT p.lease_key, p.slot, p.token, p.handle
FROM dblock_permit p
WHERE p.lease_key = sqlc.arg(lease_key) AND p.handle IS NOT NULL
  AND (p.member_id IN (sqlc.slice(gones)) OR p.held_until <= +UTC_TIMESTAMP(6))
LIMIT 18446744073709551615;

-- Gives back a batch of permits. Rows that are locked, by a guard for example, are passed over.
-- name: ReleasePermits :execrows
UPDATE (
    SELECT p.lease_key, p.slot
    FROM ( /*dblock:asks*/
        SELECT CAST(sqlc.arg(lease_key) AS BINARY) AS lease_key, CAST(sqlc.arg(slot) AS SIGNED) AS slot, CAST(sqlc.arg(handle) AS BINARY) AS handle
    /*dblock:end*/) ask
    STRAIGHT_JOIN dblock_permit p FORCE INDEX (PRIMARY) ON p.lease_key = ask.lease_key AND p.slot = ask.slot
    WHERE p.handle = ask.handle
    LIMIT 1000000
    FOR UPDATE SKIP LOCKED
) ours
STRAIGHT_JOIN dblock_permit t FORCE INDEX (PRIMARY) ON t.lease_key = ours.lease_key AND t.slot = ours.slot
SET t.handle = NULL, t.together = 0, t.member_id = NULL, t.held_until = NULL, t.changed_at = +UTC_TIMESTAMP(6), t.label = '', t.data = NULL;

-- Ends permits at a moment of their own: all of an acquisition, or none. Its rows are named, as
-- PermitSlots found them.
-- name: ExpirePermits :execrows
UPDATE (
    SELECT ours.lease_key, ours.slot
    FROM (
        SELECT all_of.lease_key, all_of.slot, all_of.together, COUNT(*) OVER () AS have
        FROM (
            SELECT p.lease_key, p.slot, p.together
            FROM dblock_permit p FORCE INDEX (PRIMARY)
            WHERE p.lease_key = sqlc.arg(lease_key) AND p.slot IN (sqlc.slice(slots))
              AND p.token = sqlc.arg(token) AND p.handle = CAST(sqlc.arg(handle) AS BINARY)
              AND (p.held_until IS NULL OR p.held_until > +UTC_TIMESTAMP(6))
            LIMIT 1000000
            FOR UPDATE SKIP LOCKED
        ) all_of
    ) ours
    WHERE ours.have = ours.together
    LIMIT 1000000
) whole
STRAIGHT_JOIN dblock_permit t FORCE INDEX (PRIMARY) ON t.lease_key = whole.lease_key AND t.slot = whole.slot
SET t.held_until = TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(hold_us) AS SIGNED), +UTC_TIMESTAMP(6));

-- Which of these acquisitions still hold all of their permits.
-- name: HoldingPermits :many
SELECT p.lease_key, p.handle
FROM dblock_permit p
WHERE p.lease_key IN (sqlc.slice(lease_keys)) AND p.handle IN (sqlc.slice(handles))
  AND (p.held_until IS NULL OR p.held_until > +UTC_TIMESTAMP(6))
GROUP BY p.lease_key, p.handle, p.together
HAVING COUNT(*) = p.together
LIMIT 18446744073709551615;
