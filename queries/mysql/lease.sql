-- Each of these is one autocommit statement, in whatever isolation the connection has. None of
-- those that change a lease ever waits for a lock of its row. A client cannot take back a statement
-- that waits. One that goes on after its client has given up would grant a lease that no process
-- knows. There is no UPDATE with SKIP LOCKED; so the rows are locked by a derived table, which
-- LIMIT keeps whole, and the UPDATE finds them by its keys, its own already. On MariaDB a statement
-- can be set not to wait instead: AcquireLease, AcquireAlike, ReleaseLease and ReleaseAlike are
-- sent only so.
--
-- No statement that acquires locks the member's row: the process's heartbeat would wait for it.
-- InnoDB reads a row without a lock in an UPDATE of one table and in an INSERT ... SELECT, if the
-- session is at READ UNCOMMITTED; in an UPDATE of several tables it never does. So a statement that
-- finds its rows in a derived table writes them with ON DUPLICATE KEY UPDATE. It holds their locks
-- then: it inserts none, and counts each as two. After bound_us such a statement overflows on
-- purpose, and grants nothing: its client has given up.

-- Grants what is free of a batch, each key once. It does nothing once the member has beaten twice
-- more than the caller knew: then the caller has given up on it, and it was under way for too long.
-- What is held in the place of which it is asked for, or by a member that is gone for good, counts
-- as free. Where readers may be there it is not granted; what is held in the place of another one
-- is free of them. All that are granted have the same token, the statement's insert id: what has a
-- larger one, as the clock was set, is left to AcquireLease.
-- name: AcquireLeases :execresult
INSERT INTO dblock_lease (lease_key, token, handle, member_id, held_until, label, data)
SELECT free.lease_key, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6)), free.handle, NULLIF(free.member_id, ''),
       TIMESTAMPADD(MICROSECOND, NULLIF(free.hold_us, 0), +UTC_TIMESTAMP(6)), free.label, NULLIF(free.data, '')
FROM (
    SELECT l.lease_key, ask.handle, ask.label, ask.data, ask.hold_us, ask.member_id
    FROM (
        SELECT m.member_id FROM dblock_member m
        WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= CAST(sqlc.arg(beat) AS SIGNED) + 1 AND m.expires_at > +UTC_TIMESTAMP(6)
    ) me
    STRAIGHT_JOIN ( /*dblock:asks*/
        SELECT CAST(sqlc.arg(lease_key) AS BINARY) AS lease_key, CAST(sqlc.arg(handle) AS BINARY) AS handle, CAST(sqlc.arg(instead) AS BINARY) AS instead, CAST(sqlc.arg(gone) AS BINARY) AS gone, CAST(sqlc.arg(keeper) AS BINARY) AS member_id, CAST(sqlc.arg(hold_us) AS SIGNED) AS hold_us, CAST(sqlc.arg(label) AS BINARY) AS label, CAST(sqlc.arg(data) AS BINARY) AS data
    /*dblock:end*/) ask
    STRAIGHT_JOIN dblock_lease l FORCE INDEX (PRIMARY) ON l.lease_key = ask.lease_key
    WHERE (NOT l.shared OR l.handle = ask.instead)
      AND (l.handle IS NULL OR l.handle = ask.instead OR l.member_id = ask.gone OR l.held_until <= +UTC_TIMESTAMP(6))
      AND l.token < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6))
    LIMIT 1000000
    FOR UPDATE SKIP LOCKED
) free
ON DUPLICATE KEY UPDATE
    token = LAST_INSERT_ID((9223372036854775807 + (TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) > CAST(sqlc.arg(bound_us) AS SIGNED))) - 9223372036854775807 + VALUES(token)),
    handle = VALUES(handle), member_id = VALUES(member_id),
    held_until = VALUES(held_until), changed_at = +UTC_TIMESTAMP(6), label = VALUES(label), data = VALUES(data), shared = false;

-- AcquireLeases for asks that are alike: held by the member, for no time of their own, with one
-- label and no data. It waits for what is locked, and makes no tables of its own: on MariaDB, where
-- it can be set not to wait, it is several times as fast. An acquisition has a handle of its own,
-- so it does not matter which ask names it.
-- name: AcquireAlike :execresult
UPDATE dblock_lease t
SET t.token = LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6))),
    t.handle = CASE t.lease_key /*dblock:terms*/WHEN sqlc.arg(lease_key) THEN CAST(sqlc.arg(handle) AS BINARY) /*dblock:end*/END,
    t.member_id = sqlc.arg(keeper), t.held_until = NULL, t.changed_at = +UTC_TIMESTAMP(6), t.label = sqlc.arg(label), t.data = NULL,
    t.shared = false
WHERE t.lease_key IN (sqlc.slice(lease_keys)) AND t.token < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6))
  AND (NOT t.shared OR t.handle IN (sqlc.slice(insteads)))
  AND (t.handle IS NULL OR t.handle IN (sqlc.slice(insteads)) OR t.member_id IN (sqlc.slice(gones)) OR t.held_until <= +UTC_TIMESTAMP(6))
  AND EXISTS (
      SELECT 1 FROM dblock_member m
      WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= CAST(sqlc.arg(beat) AS SIGNED) + 1 AND m.expires_at > +UTC_TIMESTAMP(6)
  );

-- AcquireLeases for a single caller, without the tables that the server makes for a batch. It would
-- wait for the row: only MariaDB can set a statement not to wait, and there it is several times as
-- fast. A request over readers gets the key in spite of possible readers. Its caller is not to hold
-- it before they have gone: till then the row stays shared, with their token.
-- name: AcquireLease :execresult
UPDATE dblock_lease t
SET t.token = LAST_INSERT_ID(IF(t.shared AND CAST(sqlc.arg(pending) AS SIGNED) = 1, t.token,
                                GREATEST(t.token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6))))),
    t.handle = CAST(sqlc.arg(handle) AS BINARY),
    t.member_id = NULLIF(CAST(sqlc.arg(keeper) AS BINARY), ''),
    t.held_until = TIMESTAMPADD(MICROSECOND, NULLIF(CAST(sqlc.arg(hold_us) AS SIGNED), 0), +UTC_TIMESTAMP(6)),
    t.changed_at = +UTC_TIMESTAMP(6), t.label = sqlc.arg(label), t.data = NULLIF(CAST(sqlc.arg(data) AS BINARY), ''),
    t.shared = t.shared AND CAST(sqlc.arg(pending) AS SIGNED) = 1
WHERE t.lease_key = sqlc.arg(lease_key)
  AND (NOT t.shared OR t.handle = CAST(sqlc.arg(instead) AS BINARY) OR CAST(sqlc.arg(pending) AS SIGNED) = 1)
  AND (t.handle IS NULL OR t.handle = CAST(sqlc.arg(instead) AS BINARY) OR t.member_id = CAST(sqlc.arg(gone) AS BINARY)
       OR t.held_until <= +UTC_TIMESTAMP(6))
  AND EXISTS (
      SELECT 1 FROM dblock_member m
      WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= CAST(sqlc.arg(beat) AS SIGNED) + 1 AND m.expires_at > +UTC_TIMESTAMP(6)
  );

-- The same where the row has to be passed over.
-- name: AcquireLeaseSkipping :execresult
UPDATE dblock_lease t
SET t.token = LAST_INSERT_ID(IF(t.shared AND CAST(sqlc.arg(pending) AS SIGNED) = 1, t.token,
                                GREATEST(t.token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6))))),
    t.handle = CAST(sqlc.arg(handle) AS BINARY),
    t.member_id = NULLIF(CAST(sqlc.arg(keeper) AS BINARY), ''),
    t.held_until = TIMESTAMPADD(MICROSECOND, NULLIF(CAST(sqlc.arg(hold_us) AS SIGNED), 0), +UTC_TIMESTAMP(6)),
    t.changed_at = +UTC_TIMESTAMP(6), t.label = sqlc.arg(label), t.data = NULLIF(CAST(sqlc.arg(data) AS BINARY), ''),
    t.shared = t.shared AND CAST(sqlc.arg(pending) AS SIGNED) = 1
WHERE t.lease_key = (
    SELECT free.lease_key FROM (
        SELECT l.lease_key
        FROM (
            SELECT m.member_id FROM dblock_member m
            WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= CAST(sqlc.arg(beat) AS SIGNED) + 1 AND m.expires_at > +UTC_TIMESTAMP(6)
        ) me
        STRAIGHT_JOIN dblock_lease l FORCE INDEX (PRIMARY)
        WHERE l.lease_key = sqlc.arg(lease_key)
          AND (NOT l.shared OR l.handle = CAST(sqlc.arg(instead) AS BINARY) OR CAST(sqlc.arg(pending) AS SIGNED) = 1)
          AND (l.handle IS NULL OR l.handle = CAST(sqlc.arg(instead) AS BINARY) OR l.member_id = CAST(sqlc.arg(gone) AS BINARY)
               OR l.held_until <= +UTC_TIMESTAMP(6))
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) free
);

-- Makes the rows that are missing, and grants them, under the same condition. IGNORE and not ON
-- DUPLICATE KEY UPDATE, which would wait for a guarded row. It would wait for a row or a gap that
-- another transaction has locked: on MariaDB it is set not to. All have the same token, the
-- statement's insert id.
-- name: InsertLeases :execresult
INSERT IGNORE INTO dblock_lease (lease_key, token, handle, member_id, held_until, label, data)
SELECT ask.lease_key, LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6))), ask.handle, NULLIF(ask.member_id, ''),
       TIMESTAMPADD(MICROSECOND, NULLIF(ask.hold_us, 0), +UTC_TIMESTAMP(6)), ask.label, NULLIF(ask.data, '')
FROM (
    SELECT m.member_id FROM dblock_member m
    WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= CAST(sqlc.arg(beat) AS SIGNED) + 1 AND m.expires_at > +UTC_TIMESTAMP(6)
) me
STRAIGHT_JOIN ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(lease_key) AS BINARY) AS lease_key, CAST(sqlc.arg(handle) AS BINARY) AS handle, CAST(sqlc.arg(keeper) AS BINARY) AS member_id, CAST(sqlc.arg(hold_us) AS SIGNED) AS hold_us, CAST(sqlc.arg(label) AS BINARY) AS label, CAST(sqlc.arg(data) AS BINARY) AS data
/*dblock:end*/) ask
ON true;

-- InsertLeases for MySQL, which has no INSERT that does not wait. At READ UNCOMMITTED the SELECT
-- locks nothing and sees rows that other transactions have not committed: the statement passes over
-- those. It cannot see a locked gap. It waits for the gap, at most for the lock wait timeout of the
-- session, and grants the lease if the gap becomes free.
-- name: InsertLeasesSkipping :execresult
INSERT IGNORE INTO dblock_lease (lease_key, token, handle, member_id, held_until, label, data)
SELECT ask.lease_key, LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6))), ask.handle, NULLIF(ask.member_id, ''),
       TIMESTAMPADD(MICROSECOND, NULLIF(ask.hold_us, 0), +UTC_TIMESTAMP(6)), ask.label, NULLIF(ask.data, '')
FROM (
    SELECT m.member_id FROM dblock_member m
    WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= CAST(sqlc.arg(beat) AS SIGNED) + 1 AND m.expires_at > +UTC_TIMESTAMP(6)
) me
STRAIGHT_JOIN ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(lease_key) AS BINARY) AS lease_key, CAST(sqlc.arg(handle) AS BINARY) AS handle, CAST(sqlc.arg(keeper) AS BINARY) AS member_id, CAST(sqlc.arg(hold_us) AS SIGNED) AS hold_us, CAST(sqlc.arg(label) AS BINARY) AS label, CAST(sqlc.arg(data) AS BINARY) AS data
/*dblock:end*/) ask
ON true
WHERE NOT EXISTS (SELECT 1 FROM dblock_lease l FORCE INDEX (PRIMARY) WHERE l.lease_key = ask.lease_key);

-- Grants a set, all of it or nothing: the rows are counted when they are locked. What the grants
-- have in common is named once, because a set may have many keys and its data may be long. All have
-- the same token, the statement's insert id, which is above each of their earlier ones.
-- name: AcquireSet :execresult
INSERT INTO dblock_lease (lease_key, token)
SELECT free.lease_key, free.latest
FROM (
    SELECT counted.lease_key, counted.latest
    FROM (
        SELECT f.lease_key, COUNT(*) OVER () AS have, MAX(f.token) OVER () AS latest
        FROM (
            SELECT l.lease_key, l.token
            FROM (
                SELECT m.member_id FROM dblock_member m
                WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= CAST(sqlc.arg(beat) AS SIGNED) + 1 AND m.expires_at > +UTC_TIMESTAMP(6)
            ) me
            STRAIGHT_JOIN ( /*dblock:asks*/
                SELECT CAST(sqlc.arg(lease_key) AS BINARY) AS lease_key, CAST(sqlc.arg(gone) AS BINARY) AS gone
            /*dblock:end*/) ask
            STRAIGHT_JOIN dblock_lease l FORCE INDEX (PRIMARY) ON l.lease_key = ask.lease_key
            WHERE NOT l.shared AND (l.handle IS NULL OR l.member_id = ask.gone OR l.held_until <= +UTC_TIMESTAMP(6))
            LIMIT 1000000
            FOR UPDATE SKIP LOCKED
        ) f
    ) counted
    WHERE counted.have = CAST(sqlc.arg(wanted) AS SIGNED)
) free
ON DUPLICATE KEY UPDATE
    token = LAST_INSERT_ID((9223372036854775807 + (TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) > CAST(sqlc.arg(bound_us) AS SIGNED))) - 9223372036854775807
        + GREATEST(VALUES(token) + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6)))),
    handle = CAST(sqlc.arg(handle) AS BINARY),
    member_id = NULLIF(CAST(sqlc.arg(keeper) AS BINARY), ''),
    held_until = TIMESTAMPADD(MICROSECOND, NULLIF(CAST(sqlc.arg(hold_us) AS SIGNED), 0), +UTC_TIMESTAMP(6)),
    changed_at = +UTC_TIMESTAMP(6), label = sqlc.arg(label), data = NULLIF(CAST(sqlc.arg(data) AS BINARY), '');

-- Makes rows that are missing. They have no holder.
-- name: InsertFreeLeases :exec
INSERT IGNORE INTO dblock_lease (lease_key, token)
VALUES /*dblock:rows*/(sqlc.arg(lease_key), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6)) - 1)/*dblock:end*/;

-- InsertFreeLeases and InsertShared for MySQL: see InsertLeasesSkipping.
-- name: InsertUnheldSkipping :exec
INSERT IGNORE INTO dblock_lease (lease_key, token, shared)
SELECT ask.lease_key, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', +UTC_TIMESTAMP(6)) - 1 + ask.shared, ask.shared
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(lease_key) AS BINARY) AS lease_key, CAST(sqlc.arg(shared) AS SIGNED) AS shared
/*dblock:end*/) ask
WHERE NOT EXISTS (SELECT 1 FROM dblock_lease l FORCE INDEX (PRIMARY) WHERE l.lease_key = ask.lease_key);

-- Releases a set if as many rows as given can be locked: all that are ours.
-- name: ReleaseSet :execrows
UPDATE (
    SELECT counted.lease_key
    FROM (
        SELECT f.lease_key, COUNT(*) OVER () AS have
        FROM (
            SELECT l.lease_key
            FROM ( /*dblock:asks*/
                SELECT CAST(sqlc.arg(lease_key) AS BINARY) AS lease_key, CAST(sqlc.arg(handle) AS BINARY) AS handle
            /*dblock:end*/) ask
            STRAIGHT_JOIN dblock_lease l FORCE INDEX (PRIMARY) ON l.lease_key = ask.lease_key
            WHERE l.handle = ask.handle
            LIMIT 1000000
            FOR UPDATE SKIP LOCKED
        ) f
    ) counted
    WHERE counted.have = CAST(sqlc.arg(wanted) AS SIGNED)
) ours
STRAIGHT_JOIN dblock_lease t FORCE INDEX (PRIMARY) ON t.lease_key = ours.lease_key
SET t.handle = NULL, t.member_id = NULL, t.held_until = NULL, t.changed_at = +UTC_TIMESTAMP(6), t.label = '', t.data = NULL;

-- name: StatementLimits :one
SELECT CAST(@@innodb_lock_wait_timeout AS SIGNED) AS lock_wait_seconds, CAST(@@max_allowed_packet AS SIGNED) AS max_packet
LIMIT 1;

-- The holders of keys, and the free keys, as one snapshot shows them: a holder's member that it
-- lacks is gone.
-- name: ReadLeases :many
SELECT l.lease_key, l.token, l.handle, l.member_id, l.label, l.shared,
       EXISTS (
           SELECT 1 FROM dblock_member me
           WHERE me.member_id = sqlc.arg(member_id) AND me.beat <= CAST(sqlc.arg(beat) AS SIGNED) + 1 AND me.expires_at > +UTC_TIMESTAMP(6)
       ) AS alive,
       CAST(CASE WHEN l.handle IS NOT NULL AND (l.held_until IS NULL OR l.held_until > +UTC_TIMESTAMP(6)) THEN 1 ELSE 0 END AS SIGNED) AS held,
       CAST(CASE WHEN l.member_id IS NOT NULL AND (m.member_id IS NULL OR m.expires_at <= +UTC_TIMESTAMP(6)) THEN 1 ELSE 0 END AS SIGNED) AS holder_dead,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, +UTC_TIMESTAMP(6),
            LEAST(COALESCE(l.held_until, m.expires_at), COALESCE(m.expires_at, l.held_until))), 0) AS SIGNED) AS remaining_us
FROM dblock_lease l
LEFT JOIN dblock_member m ON m.member_id = l.member_id
WHERE l.lease_key IN (sqlc.slice(lease_keys))
LIMIT 18446744073709551615;

-- Gives back a batch, each key once. Rows that are locked, by a guard for example, are passed over.
-- name: ReleaseLeases :execrows
UPDATE (
    SELECT l.lease_key
    FROM ( /*dblock:asks*/
        SELECT CAST(sqlc.arg(lease_key) AS BINARY) AS lease_key, CAST(sqlc.arg(handle) AS BINARY) AS handle, CAST(sqlc.arg(token) AS SIGNED) AS token
    /*dblock:end*/) ask
    STRAIGHT_JOIN dblock_lease l FORCE INDEX (PRIMARY) ON l.lease_key = ask.lease_key
    WHERE l.handle = ask.handle AND (ask.token = 0 OR l.token = ask.token)
    LIMIT 1000000
    FOR UPDATE SKIP LOCKED
) ours
STRAIGHT_JOIN dblock_lease t FORCE INDEX (PRIMARY) ON t.lease_key = ours.lease_key
SET t.handle = NULL, t.member_id = NULL, t.held_until = NULL, t.changed_at = +UTC_TIMESTAMP(6), t.label = '', t.data = NULL;

-- ReleaseLeases for a single caller, where a statement can be set not to wait.
-- name: ReleaseLease :execrows
UPDATE dblock_lease t
SET t.handle = NULL, t.member_id = NULL, t.held_until = NULL, t.changed_at = +UTC_TIMESTAMP(6), t.label = '', t.data = NULL
WHERE t.lease_key = sqlc.arg(lease_key) AND t.handle = CAST(sqlc.arg(handle) AS BINARY)
  AND (CAST(sqlc.arg(token) AS SIGNED) = 0 OR t.token = sqlc.arg(token));

-- The same for a batch.
-- name: ReleaseAlike :execrows
UPDATE dblock_lease t
SET t.handle = NULL, t.member_id = NULL, t.held_until = NULL, t.changed_at = +UTC_TIMESTAMP(6), t.label = '', t.data = NULL
WHERE t.lease_key IN (sqlc.slice(lease_keys)) AND t.handle IN (sqlc.slice(handles));

-- ReleaseLease where the row has to be passed over.
-- name: ReleaseLeaseSkipping :execrows
UPDATE dblock_lease t
SET t.handle = NULL, t.member_id = NULL, t.held_until = NULL, t.changed_at = +UTC_TIMESTAMP(6), t.label = '', t.data = NULL
WHERE t.lease_key = (
    SELECT ours.lease_key FROM (
        SELECT l.lease_key FROM dblock_lease l
        WHERE l.lease_key = sqlc.arg(lease_key) AND l.handle = CAST(sqlc.arg(handle) AS BINARY)
          AND (CAST(sqlc.arg(token) AS SIGNED) = 0 OR l.token = sqlc.arg(token))
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) ours
);

-- name: LeaseHandles :many
SELECT l.lease_key, l.token, l.handle
FROM dblock_lease l
WHERE l.lease_key IN (sqlc.slice(lease_keys))
LIMIT 18446744073709551615;

-- Ends all leases of one acquisition at a moment of their own, regardless of heartbeats; or none,
-- if not all are ours or one is locked. The driver repeats the SELECT of ask.
-- name: ExpireLeases :execrows
UPDATE (
    SELECT counted.lease_key
    FROM (
        SELECT f.lease_key, COUNT(*) OVER () AS have
        FROM (
            SELECT l.lease_key
            FROM ( /*dblock:asks*/
                SELECT CAST(sqlc.arg(lease_key) AS BINARY) AS lease_key, CAST(sqlc.arg(handle) AS BINARY) AS handle
            /*dblock:end*/) ask
            STRAIGHT_JOIN dblock_lease l FORCE INDEX (PRIMARY) ON l.lease_key = ask.lease_key
            WHERE l.handle = ask.handle AND (l.held_until IS NULL OR l.held_until > +UTC_TIMESTAMP(6))
            LIMIT 1000000
            FOR UPDATE SKIP LOCKED
        ) f
    ) counted
    WHERE counted.have = CAST(sqlc.arg(wanted) AS SIGNED)
) ours
STRAIGHT_JOIN dblock_lease t FORCE INDEX (PRIMARY) ON t.lease_key = ours.lease_key
SET t.held_until = TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(hold_us) AS SIGNED), +UTC_TIMESTAMP(6));

-- The keys of these that are held, and their handles.
-- name: HoldingLeases :many
SELECT l.lease_key, l.handle
FROM dblock_lease l
WHERE l.lease_key IN (sqlc.slice(lease_keys)) AND l.handle IS NOT NULL
  AND (l.held_until IS NULL OR l.held_until > +UTC_TIMESTAMP(6))
LIMIT 18446744073709551615;

-- name: WaitForLeases :exec
INSERT INTO dblock_lease_waiter (lease_key, member_id, expires_at)
VALUES /*dblock:rows*/(sqlc.arg(lease_key), sqlc.arg(member_id), TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(ttl_us) AS SIGNED), +UTC_TIMESTAMP(6)))/*dblock:end*/
ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at);

-- name: StopWaiting :exec
DELETE FROM dblock_lease_waiter WHERE lease_key IN (sqlc.slice(lease_keys)) AND member_id = sqlc.arg(member_id);

-- Those of a member's keys that it waits for by the table.
-- name: WaitedFor :many
SELECT lease_key FROM dblock_lease_waiter WHERE lease_key IN (sqlc.slice(lease_keys)) AND member_id = sqlc.arg(member_id)
LIMIT 18446744073709551615;

-- The same, without those whose rows another transaction has locked.
-- name: FreeWaitedFor :many
SELECT lease_key FROM dblock_lease_waiter WHERE lease_key IN (sqlc.slice(lease_keys)) AND member_id = sqlc.arg(member_id)
LIMIT 18446744073709551615
FOR UPDATE SKIP LOCKED;

-- name: OthersWait :one
SELECT EXISTS (
    SELECT 1 FROM dblock_lease_waiter w
    JOIN dblock_member m ON m.member_id = w.member_id
    WHERE w.lease_key = sqlc.arg(lease_key) AND w.member_id <> sqlc.arg(member_id)
      AND w.expires_at > +UTC_TIMESTAMP(6) AND m.expires_at > +UTC_TIMESTAMP(6)
) AS waits
LIMIT 1;

-- Looks at leases that are held, one step after the other with a pause before each, until one of
-- them seems free, or to be that of a call that waits with a ticket; then those that do. It is sent
-- at READ UNCOMMITTED, where each step reads the rows as they are: a release is seen before it is
-- committed, and may yet be undone (see FreeLeases). What is known under its token is passed over.
-- The empty key, which no lease has, and the counting over a step keep an optimizer from reading a
-- single row once for all steps. That a holder has gone without a release, or that its time is
-- up, is looked for at every sixteenth step; the time does not pass within a statement.
-- name: WatchLeases :many
SELECT f.lease_key, f.token, f.handle
FROM (
    SELECT step.n
    FROM (
        SELECT units.n + 10 * tens.n + 100 * hundreds.n AS n
        FROM (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5
              UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) units
        CROSS JOIN (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5
              UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) tens
        CROSS JOIN (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5
              UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) hundreds
    ) step
    WHERE step.n < CAST(sqlc.arg(steps) AS SIGNED)
      AND IF(IF(step.n = 0, 0, SLEEP(CAST(sqlc.arg(step_us) AS SIGNED) * 0.000001)) = 0, EXISTS (
          SELECT 1 FROM dblock_lease l FORCE INDEX (PRIMARY)
          WHERE l.lease_key IN ('', sqlc.slice(lease_keys)) /*dblock:terms*/
            AND (l.lease_key <> sqlc.arg(told_key) OR l.token <> sqlc.arg(told_token))
            /*dblock:end*/AND (l.handle IS NULL OR l.handle IN (sqlc.slice(turns)) OR step.n % 16 = 0 AND (l.held_until <= +UTC_TIMESTAMP(6) OR l.member_id IS NOT NULL AND (
                SELECT COUNT(*) FROM dblock_member m WHERE m.member_id = l.member_id AND step.n >= 0
            ) = 0))
      ), 0)
    LIMIT 1
) woken
STRAIGHT_JOIN dblock_lease f FORCE INDEX (PRIMARY)
WHERE f.lease_key IN ('', sqlc.slice(woken_keys))
  AND (f.handle IS NULL OR f.handle IN (sqlc.slice(woken_turns)) OR f.held_until <= +UTC_TIMESTAMP(6) OR f.member_id IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM dblock_member m WHERE m.member_id = f.member_id
  ))
LIMIT 18446744073709551615;

-- Which of these are free for a call that asks now.
-- name: FreeLeases :many
SELECT l.lease_key, l.token
FROM dblock_lease l
WHERE l.lease_key IN (sqlc.slice(lease_keys))
  AND (l.handle IS NULL OR l.held_until <= +UTC_TIMESTAMP(6) OR l.member_id IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM dblock_member m WHERE m.member_id = l.member_id
  ))
LIMIT 18446744073709551615;

-- What is held, in whatever mode (see dblock.Mode), an acquisition each. The count of waiters is
-- that of the key's, whatever they wait for.
-- name: ListHeld :many
SELECT held.lease_key, CAST(held.mode AS SIGNED) AS mode, CAST(held.token AS SIGNED) AS token, held.handle, held.member_id, held.label,
       CAST(held.permits AS SIGNED) AS permits, CAST(held.limited_to AS SIGNED) AS limited_to, COALESCE(m.label, '') AS member_label,
       CAST(TIMESTAMPDIFF(MICROSECOND, held.changed_at, +UTC_TIMESTAMP(6)) AS SIGNED) AS age_us,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, +UTC_TIMESTAMP(6),
            LEAST(COALESCE(held.held_until, m.expires_at), COALESCE(m.expires_at, held.held_until))), 0) AS SIGNED) AS remaining_us,
       CAST((SELECT COUNT(*) FROM dblock_lease_waiter w
        JOIN dblock_member wm ON wm.member_id = w.member_id
        WHERE w.lease_key = held.lease_key AND w.expires_at > +UTC_TIMESTAMP(6))
        + (SELECT COUNT(DISTINCT t.member_id) FROM dblock_ticket t
        JOIN dblock_member tm ON tm.member_id = t.member_id
        WHERE t.lease_key = held.lease_key AND tm.expires_at > +UTC_TIMESTAMP(6)) AS SIGNED) AS waiters
FROM (
    SELECT l.lease_key, 0 AS mode, l.token, l.handle, l.member_id, l.held_until, l.changed_at, l.label, 0 AS permits, 0 AS limited_to
    FROM dblock_lease l WHERE l.handle IS NOT NULL AND NOT l.shared -- else it waits for readers
    UNION ALL
    SELECT r.lease_key, 1, r.token, r.handle, r.member_id, r.held_until, r.changed_at, r.label, 0, 0
    FROM dblock_reader r
    UNION ALL
    SELECT p.lease_key, 2, MAX(p.token), p.handle, p.member_id, MAX(p.held_until), MAX(p.changed_at), p.label, p.together, s.permits
    FROM dblock_permit p JOIN dblock_semaphore s ON s.lease_key = p.lease_key
    WHERE p.handle IS NOT NULL
    GROUP BY p.lease_key, p.handle, p.member_id, p.label, p.together, s.permits
) held
LEFT JOIN dblock_member m ON m.member_id = held.member_id
WHERE (held.held_until IS NULL OR held.held_until > +UTC_TIMESTAMP(6))
  AND (held.member_id IS NULL OR m.expires_at > +UTC_TIMESTAMP(6))
ORDER BY held.lease_key, held.mode, held.handle
LIMIT 18446744073709551615;

-- The acquisitions that hold one key. Each table is asked by its index: no other key's rows are
-- read.
-- name: HoldersOfKey :many
SELECT CAST(held.mode AS SIGNED) AS mode, CAST(held.token AS SIGNED) AS token, held.handle, held.member_id, held.label,
       COALESCE(m.label, '') AS member_label
FROM (
    SELECT 0 AS mode, l.token, l.handle, l.member_id, l.held_until, l.label
    FROM dblock_lease l WHERE l.lease_key = sqlc.arg(exclusive_key) AND l.handle IS NOT NULL AND NOT l.shared
    UNION ALL
    SELECT 1, r.token, r.handle, r.member_id, r.held_until, r.label
    FROM dblock_reader r WHERE r.lease_key = sqlc.arg(shared_key)
    UNION ALL
    SELECT 2, MAX(p.token), p.handle, p.member_id, MAX(p.held_until), p.label
    FROM dblock_permit p WHERE p.lease_key = sqlc.arg(permits_key) AND p.handle IS NOT NULL
    GROUP BY p.handle, p.member_id, p.label
) held
LEFT JOIN dblock_member m ON m.member_id = held.member_id
WHERE (held.held_until IS NULL OR held.held_until > +UTC_TIMESTAMP(6))
  AND (held.member_id IS NULL OR m.expires_at > +UTC_TIMESTAMP(6))
ORDER BY held.mode, held.handle
LIMIT 18446744073709551615;

-- What a member keeps: what it holds, in whatever mode, and its tickets. No index leads to it: all
-- rows are read, seldom.
-- name: HeldByMember :many
SELECT held.lease_key, CAST(held.mode AS SIGNED) AS mode, held.handle
FROM (
    SELECT l.lease_key, 0 AS mode, l.handle FROM dblock_lease l WHERE l.member_id = sqlc.arg(of_leases) AND l.handle IS NOT NULL
    UNION ALL
    SELECT r.lease_key, 1, r.handle FROM dblock_reader r WHERE r.member_id = sqlc.arg(of_readers)
    UNION ALL
    SELECT p.lease_key, 2, p.handle FROM dblock_permit p WHERE p.member_id = sqlc.arg(of_permits) AND p.handle IS NOT NULL
    UNION ALL
    SELECT q.lease_key, 0, q.handle FROM dblock_ticket q WHERE q.member_id = sqlc.arg(of_tickets) AND NOT q.served
) held
LIMIT 18446744073709551615;

-- One row of ListLeases, with its data.
-- name: GetLease :one
SELECT l.lease_key, l.token, l.handle, l.member_id, l.label, COALESCE(m.label, '') AS member_label, l.data,
       CAST(TIMESTAMPDIFF(MICROSECOND, l.changed_at, +UTC_TIMESTAMP(6)) AS SIGNED) AS age_us,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, +UTC_TIMESTAMP(6),
            LEAST(COALESCE(l.held_until, m.expires_at), COALESCE(m.expires_at, l.held_until))), 0) AS SIGNED) AS remaining_us,
       CAST((SELECT COUNT(*) FROM dblock_lease_waiter w
        JOIN dblock_member wm ON wm.member_id = w.member_id
        WHERE w.lease_key = l.lease_key AND w.expires_at > +UTC_TIMESTAMP(6))
        + (SELECT COUNT(DISTINCT t.member_id) FROM dblock_ticket t
        JOIN dblock_member tm ON tm.member_id = t.member_id
        WHERE t.lease_key = l.lease_key AND tm.expires_at > +UTC_TIMESTAMP(6)) AS SIGNED) AS waiters
FROM dblock_lease l
LEFT JOIN dblock_member m ON m.member_id = l.member_id
WHERE l.lease_key = sqlc.arg(lease_key)
  AND l.handle IS NOT NULL AND NOT l.shared AND (l.held_until IS NULL OR l.held_until > +UTC_TIMESTAMP(6))
  AND (l.member_id IS NULL OR m.expires_at > +UTC_TIMESTAMP(6))
LIMIT 1;

-- One acquisition of a key that is held shared, or of a semaphore, with its data: any of them.
-- name: GetSharedOrPermits :one
SELECT CAST(held.mode AS SIGNED) AS mode, CAST(held.token AS SIGNED) AS token, held.handle, held.member_id, held.label,
       CAST(held.permits AS SIGNED) AS permits, CAST(held.limited_to AS SIGNED) AS limited_to, COALESCE(m.label, '') AS member_label, held.data,
       CAST(TIMESTAMPDIFF(MICROSECOND, held.changed_at, +UTC_TIMESTAMP(6)) AS SIGNED) AS age_us,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, +UTC_TIMESTAMP(6),
            LEAST(COALESCE(held.held_until, m.expires_at), COALESCE(m.expires_at, held.held_until))), 0) AS SIGNED) AS remaining_us,
       CAST((SELECT COUNT(*) FROM dblock_lease_waiter w
        JOIN dblock_member wm ON wm.member_id = w.member_id
        WHERE w.lease_key = sqlc.arg(waited_key) AND w.expires_at > +UTC_TIMESTAMP(6))
        + (SELECT COUNT(DISTINCT t.member_id) FROM dblock_ticket t
        JOIN dblock_member tm ON tm.member_id = t.member_id
        WHERE t.lease_key = sqlc.arg(tickets_key) AND tm.expires_at > +UTC_TIMESTAMP(6)) AS SIGNED) AS waiters
FROM (
    SELECT 1 AS mode, r.token, r.handle, r.member_id, r.held_until, r.changed_at, r.label, r.data, 0 AS permits, 0 AS limited_to
    FROM dblock_reader r WHERE r.lease_key = sqlc.arg(shared_key)
    UNION ALL
    SELECT 2, p.token, p.handle, p.member_id, p.held_until, p.changed_at, p.label, p.data, p.together, s.permits
    FROM dblock_permit p JOIN dblock_semaphore s ON s.lease_key = p.lease_key
    WHERE p.lease_key = sqlc.arg(permits_key) AND p.handle IS NOT NULL
) held
LEFT JOIN dblock_member m ON m.member_id = held.member_id
WHERE (held.held_until IS NULL OR held.held_until > +UTC_TIMESTAMP(6))
  AND (held.member_id IS NULL OR m.expires_at > +UTC_TIMESTAMP(6))
LIMIT 1;

-- The token of the last acquisition of a key, held or not. A row that was removed is not found.
-- name: LastToken :one
SELECT l.token FROM dblock_lease l WHERE l.lease_key = sqlc.arg(lease_key) LIMIT 1;

-- Leases that were not used for long, also those whose member is gone for good, read without a
-- lock. An acquisition of one of them from now on changes changed_at, so that SweepLeases leaves
-- it. Where readers may be there see UnusedShared.
-- name: UnusedLeases :many
SELECT l.lease_key
FROM dblock_lease l
LEFT JOIN dblock_member m ON m.member_id = l.member_id
WHERE l.lease_key > sqlc.arg(after_key)
  AND l.changed_at < TIMESTAMPADD(MICROSECOND, 0 - CAST(sqlc.arg(older_us) AS SIGNED), +UTC_TIMESTAMP(6))
  AND (l.handle IS NULL OR l.held_until <= +UTC_TIMESTAMP(6) OR (l.member_id IS NOT NULL AND m.member_id IS NULL))
  AND NOT l.shared
ORDER BY l.lease_key
LIMIT ?;

-- Their token is lost with them: a new one begins at the clock, which is past it.
-- name: SweepLeases :execrows
DELETE d
FROM (
    SELECT l.lease_key
    FROM dblock_lease l FORCE INDEX (PRIMARY)
    WHERE l.lease_key IN (sqlc.slice(lease_keys))
      AND l.changed_at < TIMESTAMPADD(MICROSECOND, 0 - CAST(sqlc.arg(older_us) AS SIGNED), +UTC_TIMESTAMP(6))
      AND NOT l.shared
    LIMIT 1000000
    FOR UPDATE SKIP LOCKED
) unused
STRAIGHT_JOIN dblock_lease d FORCE INDEX (PRIMARY) ON d.lease_key = unused.lease_key;

-- name: ExpiredWaiters :many
SELECT w.lease_key, w.member_id
FROM dblock_lease_waiter w
WHERE w.lease_key >= sqlc.arg(from_key) AND w.expires_at < +UTC_TIMESTAMP(6)
ORDER BY w.lease_key, w.member_id
LIMIT ?;

-- name: SweepWaiter :execrows
DELETE FROM dblock_lease_waiter
WHERE lease_key = sqlc.arg(lease_key) AND member_id = sqlc.arg(member_id) AND expires_at < +UTC_TIMESTAMP(6);
