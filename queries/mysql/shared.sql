-- Each of these is one autocommit statement. See lease.sql.

-- Grants a batch of requests in shared mode. Several may be for one key. Readers come
-- where the key's row says shared and has no holder, which is locked in shared mode, so that they
-- don't wait for each other and no writer makes itself the holder meanwhile. A writer that has
-- waited for readers for long asks them to yield, for a moment: with a row of dblock_lease_waiter
-- that is no member's. The statement passes over rows that are locked; each server reads its own
-- clause for that. Where all asks are for one key its token is the statement's insert id.
-- name: AcquireShared :execresult
INSERT INTO dblock_reader (lease_key, handle, token, member_id, held_until, label, data)
SELECT opened.lease_key, opened.handle, LAST_INSERT_ID(opened.token), NULLIF(opened.member_id, ''),
       TIMESTAMPADD(MICROSECOND, NULLIF(opened.hold_us, 0), +UTC_TIMESTAMP(6)), opened.label, NULLIF(opened.data, '')
FROM (
    SELECT l.lease_key, l.token, ask.handle, ask.label, ask.data, ask.hold_us, ask.member_id
    FROM (
        SELECT m.member_id FROM dblock_member m
        WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= CAST(sqlc.arg(beat) AS SIGNED) + 1 AND m.expires_at > +UTC_TIMESTAMP(6)
    ) me
    STRAIGHT_JOIN ( /*dblock:asks*/
        SELECT CAST(sqlc.arg(lease_key) AS BINARY) AS lease_key, CAST(sqlc.arg(handle) AS BINARY) AS handle, CAST(sqlc.arg(keeper) AS BINARY) AS member_id, CAST(sqlc.arg(hold_us) AS SIGNED) AS hold_us, CAST(sqlc.arg(label) AS BINARY) AS label, CAST(sqlc.arg(data) AS BINARY) AS data
    /*dblock:end*/) ask
    STRAIGHT_JOIN dblock_lease l FORCE INDEX (PRIMARY) ON l.lease_key = ask.lease_key
    WHERE l.shared AND l.handle IS NULL
      AND NOT EXISTS (
          SELECT 1 FROM dblock_lease_waiter w
          WHERE w.lease_key = ask.lease_key AND w.member_id = x'00000000000000000000000000000000' AND w.expires_at > +UTC_TIMESTAMP(6)
      )
    LIMIT 1000000
    /*!80000 FOR SHARE */ /*M! LOCK IN SHARE MODE */ SKIP LOCKED
) opened;

-- Has a key that is free, or held by a member that is gone for good, shared from now on. The token
-- grows, which is that of all readers until a writer holds the key; if the writer that waited for
-- readers is dead it stays, as they may be there still. It grants nothing, so it does not matter
-- when it is done.
-- name: OpenShared :execrows
UPDATE (
    SELECT l.lease_key
    FROM dblock_lease l
    WHERE l.lease_key = sqlc.arg(lease_key) AND NOT (l.shared AND l.handle IS NULL)
      AND (l.handle IS NULL OR l.member_id = CAST(sqlc.arg(gone) AS BINARY) OR l.held_until <= +UTC_TIMESTAMP(6))
    LIMIT 1000000
    FOR UPDATE SKIP LOCKED
) free
STRAIGHT_JOIN dblock_lease t FORCE INDEX (PRIMARY) ON t.lease_key = free.lease_key
SET t.token = IF(t.shared, t.token, GREATEST(t.token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6)))),
    t.handle = NULL, t.member_id = NULL, t.held_until = NULL, t.changed_at = +UTC_TIMESTAMP(6), t.label = '', t.data = NULL, t.shared = true;

-- Makes a row that is missing. See InsertLeases.
-- name: InsertShared :exec
INSERT IGNORE INTO dblock_lease (lease_key, token, shared)
VALUES /*dblock:rows*/(sqlc.arg(lease_key), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6)), true)/*dblock:end*/;

-- Which acquisitions there are, of some keys and handles.
-- name: ReaderHandles :many
SELECT r.lease_key, r.token, r.handle
FROM dblock_reader r FORCE INDEX (PRIMARY)
WHERE r.lease_key IN (sqlc.slice(lease_keys)) AND r.handle IN (sqlc.slice(handles))
LIMIT 18446744073709551615;

-- The shared holders of a key, in a statement of its own: after a writer has made itself the holder
-- no more come, and so what is not seen here is none of them.
-- name: ReadReaders :many
SELECT r.member_id, r.label, r.token,
       CAST(CASE WHEN r.held_until <= +UTC_TIMESTAMP(6) OR r.member_id IS NOT NULL AND (m.member_id IS NULL OR m.expires_at <= +UTC_TIMESTAMP(6)) THEN 1 ELSE 0 END AS SIGNED) AS ended,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, +UTC_TIMESTAMP(6),
            LEAST(COALESCE(r.held_until, m.expires_at), COALESCE(m.expires_at, r.held_until))), 0) AS SIGNED) AS remaining_us
FROM dblock_reader r
LEFT JOIN dblock_member m ON m.member_id = r.member_id
WHERE r.lease_key = sqlc.arg(lease_key)
LIMIT 1000;

-- What members that are gone for good hold of a key, and what has ended by itself, read without a
-- lock: neither begins again.
-- name: EndedReaders :many
SELECT r.handle
FROM dblock_reader r
WHERE r.lease_key = sqlc.arg(lease_key) AND (r.member_id IN (sqlc.slice(gones)) OR r.held_until <= +UTC_TIMESTAMP(6))
LIMIT 18446744073709551615;

-- Gives back a batch. Rows that are locked, by a guard for example, are passed over.
-- name: ReleaseShared :execrows
DELETE d
FROM (
    SELECT r.lease_key, r.handle
    FROM ( /*dblock:asks*/
        SELECT CAST(sqlc.arg(lease_key) AS BINARY) AS lease_key, CAST(sqlc.arg(handle) AS BINARY) AS handle
    /*dblock:end*/) ask
    STRAIGHT_JOIN dblock_reader r FORCE INDEX (PRIMARY) ON r.lease_key = ask.lease_key AND r.handle = ask.handle
    LIMIT 1000000
    FOR UPDATE SKIP LOCKED
) ours
STRAIGHT_JOIN dblock_reader d FORCE INDEX (PRIMARY) ON d.lease_key = ours.lease_key AND d.handle = ours.handle;

-- name: ExpireShared :execrows
UPDATE (
    SELECT r.lease_key, r.handle
    FROM dblock_reader r
    WHERE r.lease_key = sqlc.arg(lease_key) AND r.token = sqlc.arg(token) AND r.handle = sqlc.arg(handle)
      AND (r.held_until IS NULL OR r.held_until > +UTC_TIMESTAMP(6))
    LIMIT 1000000
    FOR UPDATE SKIP LOCKED
) ours
STRAIGHT_JOIN dblock_reader t FORCE INDEX (PRIMARY) ON t.lease_key = ours.lease_key AND t.handle = ours.handle
SET t.held_until = TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(hold_us) AS SIGNED), +UTC_TIMESTAMP(6));

-- Which of these readers still hold their key.
-- name: HoldingReaders :many
SELECT r.lease_key, r.handle
FROM dblock_reader r
WHERE r.lease_key IN (sqlc.slice(lease_keys)) AND r.handle IN (sqlc.slice(handles))
  AND (r.held_until IS NULL OR r.held_until > +UTC_TIMESTAMP(6))
LIMIT 18446744073709551615;

-- Keys that were shared once, and were not used for long, read without a lock.
-- name: UnusedShared :many
SELECT l.lease_key
FROM dblock_lease l
LEFT JOIN dblock_member m ON m.member_id = l.member_id
WHERE l.lease_key > sqlc.arg(after_key)
  AND l.changed_at < TIMESTAMPADD(MICROSECOND, 0 - CAST(sqlc.arg(older_us) AS SIGNED), +UTC_TIMESTAMP(6))
  AND (l.handle IS NULL OR l.held_until <= +UTC_TIMESTAMP(6) OR (l.member_id IS NOT NULL AND m.member_id IS NULL))
  AND l.shared AND NOT EXISTS (SELECT 1 FROM dblock_reader r WHERE r.lease_key = l.lease_key)
ORDER BY l.lease_key
LIMIT ?;

-- Makes the sweeper their holder, so that no more readers come: whether one came before that is seen
-- in a statement of its own, KeysRead. The hold has ended already: a caller that wants the key takes
-- it over.
-- name: ClaimShared :execrows
UPDATE (
    SELECT l.lease_key
    FROM dblock_lease l FORCE INDEX (PRIMARY)
    WHERE l.lease_key IN (sqlc.slice(lease_keys)) AND l.shared
      AND l.changed_at < TIMESTAMPADD(MICROSECOND, 0 - CAST(sqlc.arg(older_us) AS SIGNED), +UTC_TIMESTAMP(6))
    LIMIT 1000000
    FOR UPDATE SKIP LOCKED
) unused
STRAIGHT_JOIN dblock_lease t FORCE INDEX (PRIMARY) ON t.lease_key = unused.lease_key
SET t.handle = CAST(sqlc.arg(handle) AS BINARY), t.member_id = NULL, t.held_until = +UTC_TIMESTAMP(6), t.label = '', t.data = NULL;

-- name: KeysRead :many
SELECT DISTINCT r.lease_key FROM dblock_reader r WHERE r.lease_key IN (sqlc.slice(lease_keys))
LIMIT 18446744073709551615;

-- name: SweepClaimed :execrows
DELETE d
FROM (
    SELECT l.lease_key
    FROM dblock_lease l FORCE INDEX (PRIMARY)
    WHERE l.lease_key IN (sqlc.slice(lease_keys)) AND l.handle = CAST(sqlc.arg(handle) AS BINARY)
    LIMIT 1000000
    FOR UPDATE SKIP LOCKED
) claimed
STRAIGHT_JOIN dblock_lease d FORCE INDEX (PRIMARY) ON d.lease_key = claimed.lease_key;

-- Readers whose members have been gone for long, or whose time has been up, read without a lock.
-- name: UnusedReaders :many
SELECT r.lease_key, r.handle
FROM dblock_reader r
LEFT JOIN dblock_member m ON m.member_id = r.member_id
WHERE r.lease_key >= sqlc.arg(from_key)
  AND r.changed_at < TIMESTAMPADD(MICROSECOND, 0 - CAST(sqlc.arg(older_us) AS SIGNED), +UTC_TIMESTAMP(6))
  AND (r.held_until <= +UTC_TIMESTAMP(6) OR r.member_id IS NOT NULL AND m.member_id IS NULL)
ORDER BY r.lease_key, r.handle
LIMIT ?;
