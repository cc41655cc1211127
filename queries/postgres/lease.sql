-- Each of these is one autocommit statement. What bounds the wait for a lock is set inside it, so
-- that it holds behind a pooler too and ends with it.

-- Grants what is free of a batch, each key once. It does nothing once the member has sent two more
-- heartbeats than the caller knew: the caller has given up on it then. Rows are locked in the order
-- of their keys, and locked rows are passed over. The condition is checked again on the row as it
-- was locked. A row counts as free if the request replaces its current handle, or if its member is
-- gone for good. A key that may have readers is granted only to requests over readers. It is not
-- held before the readers have gone, and its token, which is theirs, does not grow before. A row
-- whose handle is replaced has no readers. Requests for all or nothing are granted only if all keys
-- were free; if some look held they lock none, for others to find them free. Requests in turn are
-- granted only if there is no ticket. A missing row is made, except for these: most keys, such as
-- those of orders, are locked once. It returns what was granted, with the handle that the row has
-- now, and the holders of the rest, as the statement's snapshot shows it; one row without a key
-- says that the member is gone. (Lists of what no ask has may be empty: it is null then. No two of
-- the lists are joined with each other: they have no index. And most batches are granted as a
-- whole: what is for the rest is not even begun then.)
-- name: AcquireLeases :many
WITH me AS MATERIALIZED (
    SELECT m.member_id FROM dblock_member m
    WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= sqlc.arg(beat)::bigint + 1 AND m.expires_at > clock_timestamp()
      AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
), ask AS MATERIALIZED (
    SELECT pg_catalog.unnest(sqlc.arg(lease_keys)::text[]) AS lease_key, pg_catalog.unnest(sqlc.arg(handles)::uuid[]) AS handle,
           pg_catalog.unnest(sqlc.arg(insteads)::uuid[]) AS instead, pg_catalog.unnest(sqlc.arg(gones)::uuid[]) AS gone,
           pg_catalog.unnest(sqlc.arg(overs)::boolean[]) AS over,
           pg_catalog.unnest(sqlc.arg(labels)::text[]) AS label, pg_catalog.unnest(sqlc.arg(datas)::bytea[]) AS data,
           pg_catalog.unnest(sqlc.arg(hold_us)::bigint[]) AS hold_us, pg_catalog.unnest(sqlc.arg(detached)::boolean[]) AS detached
), free AS MATERIALIZED (
    SELECT l.lease_key, ask.handle, ask.instead, ask.label, ask.data, ask.hold_us, ask.detached
    FROM me, ask, dblock_lease l
    WHERE l.lease_key = ask.lease_key AND (NOT l.shared OR ask.over OR l.handle = ask.instead)
      AND (l.handle IS NULL OR l.handle = ask.instead OR l.member_id = ask.gone OR l.held_until <= clock_timestamp())
      AND (NOT sqlc.arg(together)::boolean OR NOT EXISTS (
          SELECT 1 FROM ask a JOIN dblock_lease h ON h.lease_key = a.lease_key
          WHERE h.handle IS NOT NULL AND (h.member_id = a.gone) IS NOT TRUE AND (h.held_until <= clock_timestamp()) IS NOT TRUE))
      AND (NOT sqlc.arg(in_turn)::boolean OR NOT EXISTS (
          SELECT 1 FROM dblock_ticket q JOIN dblock_member w ON w.member_id = q.member_id
          WHERE q.lease_key = l.lease_key AND w.expires_at > clock_timestamp()))
    ORDER BY l.lease_key
    FOR NO KEY UPDATE OF l SKIP LOCKED
), taken AS (
    UPDATE dblock_lease l
    SET token = CASE WHEN l.shared AND NOT COALESCE(l.handle = free.instead, false) THEN l.token
                     ELSE GREATEST(l.token + 1, (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint) END,
        handle = free.handle,
        member_id = CASE WHEN free.detached THEN NULL ELSE sqlc.arg(member_id)::uuid END,
        held_until = clock_timestamp() + NULLIF(free.hold_us, 0)::float8 * interval '1 microsecond',
        changed_at = clock_timestamp(), label = COALESCE(free.label, ''), data = free.data,
        shared = l.shared AND NOT COALESCE(l.handle = free.instead, false)
    FROM free
    WHERE l.lease_key = free.lease_key
      AND (NOT sqlc.arg(together)::boolean OR (SELECT count(*) FROM free) = pg_catalog.cardinality(sqlc.arg(lease_keys)::text[]))
    RETURNING l.lease_key, l.handle, l.token
), made AS (
    INSERT INTO dblock_lease (lease_key, token, handle, member_id, held_until, label, data)
    SELECT ask.lease_key, (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint, ask.handle,
           CASE WHEN ask.detached THEN NULL ELSE me.member_id END,
           clock_timestamp() + NULLIF(ask.hold_us, 0)::float8 * interval '1 microsecond', COALESCE(ask.label, ''), ask.data
    FROM me, ask
    WHERE (SELECT count(*) FROM taken) < pg_catalog.cardinality(sqlc.arg(lease_keys)::text[])
      AND NOT sqlc.arg(together)::boolean
      AND NOT EXISTS (SELECT 1 FROM dblock_lease l WHERE l.lease_key = ask.lease_key)
    ORDER BY ask.lease_key
    ON CONFLICT (lease_key) DO NOTHING
    RETURNING lease_key, handle, token
)
SELECT taken.lease_key::text AS lease_key, taken.handle::uuid AS handle, taken.token AS granted, NULL::uuid AS holder, ''::text AS holder_label,
       0::bigint AS holder_token, false AS holder_dead, 0::bigint AS remaining_us, false AS shared
FROM taken
UNION ALL
SELECT made.lease_key, made.handle, made.token, NULL, '', 0, false, 0, false FROM made
UNION ALL
SELECT ask.lease_key, NULL, 0, l.member_id, l.label, l.token,
       l.member_id IS NOT NULL AND (m.member_id IS NULL OR m.expires_at <= clock_timestamp()),
       COALESCE(extract(epoch FROM CASE WHEN pg_catalog.isfinite(LEAST(l.held_until, m.expires_at)) THEN LEAST(l.held_until, m.expires_at) - clock_timestamp() END) * 1000000::numeric, 0)::bigint,
       COALESCE(l.shared AND NOT COALESCE(ask.over, false)
           AND (l.handle IS NULL OR l.member_id = ask.gone OR l.held_until <= clock_timestamp()), false)
FROM ask
JOIN dblock_lease l ON l.lease_key = ask.lease_key
LEFT JOIN dblock_member m ON m.member_id = l.member_id
WHERE (SELECT count(*) FROM taken) + (SELECT count(*) FROM made) < pg_catalog.cardinality(sqlc.arg(lease_keys)::text[])
  AND (l.handle IS NOT NULL AND (l.held_until IS NULL OR l.held_until > clock_timestamp()) OR l.shared AND NOT COALESCE(ask.over, false))
UNION ALL
SELECT '', NULL, 0, NULL, '', 0, false, 0, false WHERE NOT EXISTS (SELECT 1 FROM me);

-- Grants one key: AcquireLeases for a single caller, at the price of an UPDATE by the key. Where it
-- finds nothing, AcquireLeases says why, and makes the row.
-- name: AcquireLease :one
UPDATE dblock_lease l
SET token = CASE WHEN l.shared AND NOT COALESCE(l.handle = sqlc.arg(instead), false) THEN l.token
                 ELSE GREATEST(l.token + 1, (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint) END,
    handle = sqlc.arg(handle),
    member_id = CASE WHEN sqlc.arg(detached)::boolean THEN NULL ELSE me.member_id END,
    held_until = clock_timestamp() + NULLIF(sqlc.arg(hold_us)::bigint, 0)::float8 * interval '1 microsecond',
    changed_at = clock_timestamp(), label = sqlc.arg(label), data = sqlc.narg(data),
    shared = l.shared AND NOT COALESCE(l.handle = sqlc.arg(instead), false)
FROM dblock_member me
WHERE me.member_id = sqlc.arg(member_id) AND me.beat <= sqlc.arg(beat)::bigint + 1 AND me.expires_at > clock_timestamp()
  AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
  AND l.lease_key = sqlc.arg(lease_key) AND (NOT l.shared OR sqlc.arg(over)::boolean OR l.handle = sqlc.arg(instead))
  AND (l.handle IS NULL OR l.handle = sqlc.arg(instead) OR l.member_id = sqlc.arg(gone) OR l.held_until <= clock_timestamp())
RETURNING l.token, l.handle;

-- Makes rows that are missing. They have no holder. The look before keeps it from waiting for a row
-- that is there, and that another transaction writes.
-- name: InsertFreeLeases :exec
INSERT INTO dblock_lease (lease_key, token)
SELECT ask.lease_key, (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint
FROM (SELECT pg_catalog.unnest(sqlc.arg(lease_keys)::text[]) AS lease_key
      WHERE pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL) ask
WHERE NOT EXISTS (SELECT 1 FROM dblock_lease l WHERE l.lease_key = ask.lease_key)
ORDER BY ask.lease_key
ON CONFLICT (lease_key) DO NOTHING;

-- Gives back a batch, each key once; all that is ours of it, or nothing, where it is one
-- acquisition's. It returns what was freed, and what was ours when it began: of that, what was not
-- freed was locked, by a guard for example, and is to be asked for again. The waiters of what is
-- free now are notified, after the commit.
-- name: ReleaseLeases :many
WITH ask AS MATERIALIZED (
    SELECT pg_catalog.unnest(sqlc.arg(lease_keys)::text[]) AS lease_key, pg_catalog.unnest(sqlc.arg(handles)::uuid[]) AS handle
), ours AS MATERIALIZED (
    SELECT l.lease_key, l.handle
    FROM ask, dblock_lease l
    WHERE l.lease_key = ask.lease_key AND l.handle = ask.handle
      AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
    ORDER BY l.lease_key
    FOR NO KEY UPDATE OF l SKIP LOCKED
), freed AS (
    UPDATE dblock_lease l
    SET handle = NULL, member_id = NULL, held_until = NULL, changed_at = clock_timestamp(), label = '', data = NULL
    FROM ours
    WHERE l.lease_key = ours.lease_key
      AND (NOT sqlc.arg(together)::boolean OR (SELECT count(*) FROM ours)
           = (SELECT count(*) FROM ask JOIN dblock_lease o ON o.lease_key = ask.lease_key AND o.handle = ask.handle))
    RETURNING l.lease_key, ours.handle
)
SELECT freed.lease_key::text AS lease_key, freed.handle::uuid AS handle, true AS freed,
       COALESCE(CASE WHEN sqlc.arg(notify)::boolean
                 AND EXISTS (SELECT 1 FROM dblock_lease_waiter w WHERE w.lease_key = freed.lease_key AND w.expires_at > clock_timestamp())
                THEN pg_catalog.pg_notify('dblock_released', pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(freed.lease_key, 'UTF8')), 'hex'))::text END, '')::text AS notified
FROM freed
UNION ALL
SELECT ask.lease_key, ask.handle, false, ''
FROM ask
JOIN dblock_lease l ON l.lease_key = ask.lease_key AND l.handle = ask.handle
WHERE (SELECT count(*) FROM freed) < pg_catalog.cardinality(sqlc.arg(lease_keys)::text[]);

-- Releases one lease: ReleaseLeases for a single caller. It waits if the row is locked.
-- name: ReleaseLease :one
UPDATE dblock_lease l
SET handle = NULL, member_id = NULL, held_until = NULL, changed_at = clock_timestamp(), label = '', data = NULL
WHERE l.lease_key = sqlc.arg(lease_key) AND l.handle = sqlc.arg(handle) AND (sqlc.arg(token)::bigint = 0 OR l.token = sqlc.arg(token)::bigint)
  AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
RETURNING COALESCE(CASE WHEN sqlc.arg(notify)::boolean
                    AND EXISTS (SELECT 1 FROM dblock_lease_waiter w WHERE w.lease_key = l.lease_key AND w.expires_at > clock_timestamp())
                   THEN pg_catalog.pg_notify('dblock_released', pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(l.lease_key, 'UTF8')), 'hex'))::text END, '')::text AS notified;

-- Ends all leases of one acquisition at a moment of their own, regardless of heartbeats; or none,
-- if not all are ours. It waits for rows that are locked.
-- name: ExpireLeases :execrows
WITH ours AS MATERIALIZED (
    SELECT l.lease_key
    FROM dblock_lease l
    WHERE l.lease_key = ANY(sqlc.arg(lease_keys)::text[]) AND l.handle = sqlc.arg(handle)::uuid
      AND (l.held_until IS NULL OR l.held_until > clock_timestamp())
      AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
    ORDER BY l.lease_key
    FOR NO KEY UPDATE
)
UPDATE dblock_lease l
SET held_until = clock_timestamp() + sqlc.arg(hold_us)::bigint::float8 * interval '1 microsecond'
FROM ours
WHERE l.lease_key = ours.lease_key AND (SELECT count(*) FROM ours) = sqlc.arg(wanted)::bigint;

-- The keys of these that are held, and their handles.
-- name: HoldingLeases :many
SELECT l.lease_key, l.handle
FROM dblock_lease l
WHERE l.lease_key = ANY(sqlc.arg(lease_keys)::text[]) AND l.handle IS NOT NULL
  AND (l.held_until IS NULL OR l.held_until > clock_timestamp());

-- name: WaitForLeases :exec
WITH there AS MATERIALIZED (
    SELECT w.lease_key FROM dblock_lease_waiter w
    WHERE w.lease_key = ANY (sqlc.arg(lease_keys)::text[]) AND w.member_id = sqlc.arg(member_id)
    ORDER BY w.lease_key
    FOR NO KEY UPDATE SKIP LOCKED
), again AS (
    UPDATE dblock_lease_waiter w
    SET expires_at = clock_timestamp() + sqlc.arg(ttl_us)::bigint::float8 * interval '1 microsecond'
    WHERE w.lease_key = ANY (ARRAY(SELECT t.lease_key FROM there t)) AND w.member_id = sqlc.arg(member_id)
)
INSERT INTO dblock_lease_waiter (lease_key, member_id, expires_at)
SELECT ask.lease_key, sqlc.arg(member_id)::uuid, clock_timestamp() + sqlc.arg(ttl_us)::bigint::float8 * interval '1 microsecond'
FROM (SELECT pg_catalog.unnest(sqlc.arg(lease_keys)::text[]) AS lease_key) ask
ORDER BY ask.lease_key
ON CONFLICT (lease_key, member_id) DO NOTHING;

-- Rows are deleted by their keys: a place (ctid) misses a row that the member has renewed
-- meanwhile.
-- name: StopWaiting :exec
DELETE FROM dblock_lease_waiter d
WHERE d.member_id = sqlc.arg(member_id) AND d.lease_key = ANY (ARRAY(
    SELECT w.lease_key FROM dblock_lease_waiter w
    WHERE w.lease_key = ANY (sqlc.arg(lease_keys)::text[]) AND w.member_id = sqlc.arg(member_id)
    ORDER BY w.lease_key
    FOR UPDATE SKIP LOCKED
));

-- name: NotifyNothing :exec
SELECT pg_catalog.pg_notify(sqlc.arg(channel), '');

-- name: OthersWait :one
SELECT EXISTS (
    SELECT 1 FROM dblock_lease_waiter w
    JOIN dblock_member m ON m.member_id = w.member_id
    WHERE w.lease_key = sqlc.arg(lease_key) AND w.member_id <> sqlc.arg(member_id)
      AND w.expires_at > clock_timestamp() AND m.expires_at > clock_timestamp()
);

-- What is held, in whatever mode (see dblock.Mode), an acquisition each. The count of waiters is
-- that of the key's, whatever they wait for.
-- name: ListHeld :many
SELECT held.lease_key::text AS lease_key, held.mode::smallint AS mode, held.token::bigint AS token, held.handle::uuid AS handle, held.member_id, held.label::text AS label,
       held.permits::integer AS permits, held.limited_to::integer AS limited_to, COALESCE(m.label, '')::text AS member_label,
       COALESCE(extract(epoch FROM CASE WHEN pg_catalog.isfinite(held.changed_at) THEN clock_timestamp() - held.changed_at END) * 1000000::numeric, 0)::bigint AS age_us,
       COALESCE(extract(epoch FROM CASE WHEN pg_catalog.isfinite(LEAST(held.held_until, m.expires_at)) THEN LEAST(held.held_until, m.expires_at) - clock_timestamp() END) * 1000000::numeric, 0)::bigint AS remaining_us,
       ((SELECT count(*) FROM dblock_lease_waiter w
        JOIN dblock_member wm ON wm.member_id = w.member_id
        WHERE w.lease_key = held.lease_key AND w.expires_at > clock_timestamp())
        + (SELECT pg_catalog.count(DISTINCT t.member_id) FROM dblock_ticket t
        JOIN dblock_member tm ON tm.member_id = t.member_id
        WHERE t.lease_key = held.lease_key AND tm.expires_at > clock_timestamp()))::bigint AS waiters
FROM (
    SELECT l.lease_key, 0 AS mode, l.token, l.handle, l.member_id, l.held_until, l.changed_at, l.label, 0 AS permits, 0 AS limited_to
    FROM dblock_lease l WHERE l.handle IS NOT NULL AND NOT l.shared -- else it waits for readers
    UNION ALL
    SELECT r.lease_key, 1, r.token, r.handle, r.member_id, r.held_until, r.changed_at, r.label, 0, 0
    FROM dblock_reader r
    UNION ALL
    SELECT DISTINCT ON (p.lease_key, p.handle) p.lease_key, 2, p.token, p.handle, p.member_id, p.held_until, p.changed_at, p.label, p.together, s.permits
    FROM dblock_permit p JOIN dblock_semaphore s ON s.lease_key = p.lease_key
    WHERE p.handle IS NOT NULL
) held
LEFT JOIN dblock_member m ON m.member_id = held.member_id
WHERE (held.held_until IS NULL OR held.held_until > clock_timestamp())
  AND (held.member_id IS NULL OR m.expires_at > clock_timestamp())
ORDER BY held.lease_key, held.mode, held.handle;

-- The acquisitions that hold one key. Each table is asked by its index: no other key's rows are
-- read.
-- name: HoldersOfKey :many
SELECT held.mode::smallint AS mode, held.token::bigint AS token, held.handle::uuid AS handle, held.member_id, held.label::text AS label,
       COALESCE(m.label, '')::text AS member_label
FROM (
    SELECT 0 AS mode, l.token, l.handle, l.member_id, l.held_until, l.label
    FROM dblock_lease l WHERE l.lease_key = sqlc.arg(lease_key) AND l.handle IS NOT NULL AND NOT l.shared
    UNION ALL
    SELECT 1, r.token, r.handle, r.member_id, r.held_until, r.label
    FROM dblock_reader r WHERE r.lease_key = sqlc.arg(lease_key)
    UNION ALL
    SELECT DISTINCT ON (p.handle) 2, p.token, p.handle, p.member_id, p.held_until, p.label
    FROM dblock_permit p WHERE p.lease_key = sqlc.arg(lease_key) AND p.handle IS NOT NULL
) held
LEFT JOIN dblock_member m ON m.member_id = held.member_id
WHERE (held.held_until IS NULL OR held.held_until > clock_timestamp())
  AND (held.member_id IS NULL OR m.expires_at > clock_timestamp())
ORDER BY held.mode, held.handle;

-- What a member keeps: what it holds, in whatever mode, and its tickets. No index leads to it, so
-- that a lease's changes are HOT updates: all rows are read, seldom.
-- name: HeldByMember :many
SELECT l.lease_key, 0::smallint AS mode, l.handle::uuid AS handle FROM dblock_lease l
WHERE l.member_id = sqlc.arg(member_id)::uuid AND l.handle IS NOT NULL
UNION ALL
SELECT r.lease_key, 1::smallint, r.handle FROM dblock_reader r WHERE r.member_id = sqlc.arg(member_id)::uuid
UNION ALL
SELECT p.lease_key, 2::smallint, p.handle FROM dblock_permit p WHERE p.member_id = sqlc.arg(member_id)::uuid AND p.handle IS NOT NULL
UNION ALL
SELECT q.lease_key, 0::smallint, q.handle FROM dblock_ticket q WHERE q.member_id = sqlc.arg(member_id)::uuid;

-- One row of ListLeases, with its data.
-- name: GetLease :one
SELECT l.lease_key, l.token, l.handle, l.member_id, l.label, COALESCE(m.label, '')::text AS member_label, l.data,
       COALESCE(extract(epoch FROM CASE WHEN pg_catalog.isfinite(l.changed_at) THEN clock_timestamp() - l.changed_at END) * 1000000::numeric, 0)::bigint AS age_us,
       COALESCE(extract(epoch FROM CASE WHEN pg_catalog.isfinite(LEAST(l.held_until, m.expires_at)) THEN LEAST(l.held_until, m.expires_at) - clock_timestamp() END) * 1000000::numeric, 0)::bigint AS remaining_us,
       ((SELECT count(*) FROM dblock_lease_waiter w
        JOIN dblock_member wm ON wm.member_id = w.member_id
        WHERE w.lease_key = l.lease_key AND w.expires_at > clock_timestamp())
        + (SELECT pg_catalog.count(DISTINCT t.member_id) FROM dblock_ticket t
        JOIN dblock_member tm ON tm.member_id = t.member_id
        WHERE t.lease_key = l.lease_key AND tm.expires_at > clock_timestamp()))::bigint AS waiters
FROM dblock_lease l
LEFT JOIN dblock_member m ON m.member_id = l.member_id
WHERE l.lease_key = sqlc.arg(lease_key)
  AND l.handle IS NOT NULL AND NOT l.shared AND (l.held_until IS NULL OR l.held_until > clock_timestamp())
  AND (l.member_id IS NULL OR m.expires_at > clock_timestamp());

-- One acquisition of a key that is held shared, or of a semaphore, with its data: any of them.
-- name: GetSharedOrPermits :one
SELECT held.mode::smallint AS mode, held.token::bigint AS token, held.handle::uuid AS handle, held.member_id, held.label::text AS label,
       held.permits::integer AS permits, held.limited_to::integer AS limited_to, COALESCE(m.label, '')::text AS member_label, held.data,
       COALESCE(extract(epoch FROM CASE WHEN pg_catalog.isfinite(held.changed_at) THEN clock_timestamp() - held.changed_at END) * 1000000::numeric, 0)::bigint AS age_us,
       COALESCE(extract(epoch FROM CASE WHEN pg_catalog.isfinite(LEAST(held.held_until, m.expires_at)) THEN LEAST(held.held_until, m.expires_at) - clock_timestamp() END) * 1000000::numeric, 0)::bigint AS remaining_us,
       ((SELECT count(*) FROM dblock_lease_waiter w
        JOIN dblock_member wm ON wm.member_id = w.member_id
        WHERE w.lease_key = sqlc.arg(lease_key) AND w.expires_at > clock_timestamp())
        + (SELECT pg_catalog.count(DISTINCT t.member_id) FROM dblock_ticket t
        JOIN dblock_member tm ON tm.member_id = t.member_id
        WHERE t.lease_key = sqlc.arg(lease_key) AND tm.expires_at > clock_timestamp()))::bigint AS waiters
FROM (
    SELECT 1 AS mode, r.token, r.handle, r.member_id, r.held_until, r.changed_at, r.label, r.data, 0 AS permits, 0 AS limited_to
    FROM dblock_reader r WHERE r.lease_key = sqlc.arg(lease_key)
    UNION ALL
    SELECT 2, p.token, p.handle, p.member_id, p.held_until, p.changed_at, p.label, p.data, p.together, s.permits
    FROM dblock_permit p JOIN dblock_semaphore s ON s.lease_key = p.lease_key
    WHERE p.lease_key = sqlc.arg(lease_key) AND p.handle IS NOT NULL
) held
LEFT JOIN dblock_member m ON m.member_id = held.member_id
WHERE (held.held_until IS NULL OR held.held_until > clock_timestamp())
  AND (held.member_id IS NULL OR m.expires_at > clock_timestamp())
LIMIT 1;

-- The token of the last acquisition of a key, held or not. A row that was removed is not found.
-- name: LastToken :one
SELECT l.token FROM dblock_lease l WHERE l.lease_key = sqlc.arg(lease_key);

-- name: LeaseKeysAfter :many
SELECT l.lease_key FROM dblock_lease l
WHERE l.lease_key > sqlc.arg(after_key)
ORDER BY l.lease_key
LIMIT sqlc.arg(most);

-- Rows between two keys that were not used for long, or whose member has been gone for long. Their
-- token is lost with them: a new row begins at the clock, which is past it. Where readers may be
-- there see ClaimShared.
-- name: SweepLeases :execrows
DELETE FROM dblock_lease d
WHERE d.lease_key IN (
    SELECT l.lease_key FROM dblock_lease l
    WHERE l.lease_key > sqlc.arg(after_key) AND l.lease_key <= sqlc.arg(until_key)
      AND l.changed_at < clock_timestamp() - sqlc.arg(older_us)::bigint::float8 * interval '1 microsecond'
      AND (l.handle IS NULL OR l.held_until <= clock_timestamp() OR l.member_id IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM dblock_member m WHERE m.member_id = l.member_id))
      AND NOT l.shared
    ORDER BY l.lease_key FOR UPDATE OF l SKIP LOCKED
);

-- name: SweepWaiters :execrows
DELETE FROM dblock_lease_waiter d WHERE d.expires_at < clock_timestamp();
