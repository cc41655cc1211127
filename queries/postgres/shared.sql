-- Each of these is one autocommit statement. See lease.sql.

-- Grants a batch of requests for shared keys; a key may be in it more than once. Readers are
-- granted a key if its row says shared and has no holder. The row is locked in shared mode: readers
-- don't wait for each other, and no writer makes itself the holder meanwhile. A key that is free,
-- or held by a member that is gone for good, becomes shared by this, and a missing row is made. Its
-- token grows then, and is that of all readers until a writer holds the key. A writer that has
-- waited for readers for long asks them to yield, for a moment: with a row of dblock_lease_waiter
-- that is no member's. It returns what was granted, and the holders of the rest; one row without a
-- key says that the member is gone.
-- name: AcquireShared :many
WITH me AS MATERIALIZED (
    SELECT m.member_id FROM dblock_member m
    WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= sqlc.arg(beat)::bigint + 1 AND m.expires_at > clock_timestamp()
      AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
), ask AS MATERIALIZED (
    SELECT pg_catalog.unnest(sqlc.arg(lease_keys)::text[]) AS lease_key, pg_catalog.unnest(sqlc.arg(handles)::uuid[]) AS handle,
           pg_catalog.unnest(sqlc.arg(gones)::uuid[]) AS gone, pg_catalog.unnest(sqlc.arg(labels)::text[]) AS label,
           pg_catalog.unnest(sqlc.arg(datas)::bytea[]) AS data, pg_catalog.unnest(sqlc.arg(hold_us)::bigint[]) AS hold_us,
           pg_catalog.unnest(sqlc.arg(detached)::boolean[]) AS detached
), want AS MATERIALIZED (
    SELECT DISTINCT ON (ask.lease_key) ask.lease_key, ask.gone
    FROM me, ask
    WHERE NOT EXISTS (SELECT 1 FROM dblock_lease_waiter w WHERE w.lease_key = ask.lease_key
                      AND w.member_id = '00000000-0000-0000-0000-000000000000' AND w.expires_at > clock_timestamp())
    ORDER BY ask.lease_key, ask.gone
), free AS MATERIALIZED (
    SELECT l.lease_key
    FROM want, dblock_lease l
    WHERE l.lease_key = want.lease_key AND NOT (l.shared AND l.handle IS NULL)
      AND (l.handle IS NULL OR l.member_id = want.gone OR l.held_until <= clock_timestamp())
    ORDER BY l.lease_key
    FOR NO KEY UPDATE OF l SKIP LOCKED
), opened AS (
    UPDATE dblock_lease l
    SET token = CASE WHEN l.shared THEN l.token -- the writer that waited for readers is dead, and they may be there still
                     ELSE GREATEST(l.token + 1, (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint) END,
        handle = NULL, member_id = NULL, held_until = NULL, changed_at = clock_timestamp(), label = '', data = NULL, shared = true
    FROM free
    WHERE l.lease_key = free.lease_key
    RETURNING l.lease_key, l.token
), open AS MATERIALIZED (
    SELECT l.lease_key, l.token
    FROM want, dblock_lease l
    WHERE l.lease_key = want.lease_key AND l.shared AND l.handle IS NULL
    ORDER BY l.lease_key
    FOR SHARE OF l SKIP LOCKED
), made AS (
    INSERT INTO dblock_lease (lease_key, token, shared)
    SELECT want.lease_key, (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint, true
    FROM want
    WHERE NOT EXISTS (SELECT 1 FROM dblock_lease l WHERE l.lease_key = want.lease_key)
    ORDER BY want.lease_key
    ON CONFLICT (lease_key) DO NOTHING
    RETURNING lease_key, token
), taken AS (
    INSERT INTO dblock_reader (lease_key, handle, token, member_id, held_until, label, data)
    SELECT ask.lease_key, ask.handle, k.token, CASE WHEN ask.detached THEN NULL ELSE sqlc.arg(member_id)::uuid END,
           clock_timestamp() + NULLIF(ask.hold_us, 0)::float8 * interval '1 microsecond', COALESCE(ask.label, ''), ask.data
    FROM ask
    JOIN (SELECT lease_key, token FROM opened UNION ALL SELECT lease_key, token FROM open UNION ALL SELECT lease_key, token FROM made) k
        ON k.lease_key = ask.lease_key
    RETURNING lease_key, handle, token
)
SELECT taken.lease_key::text AS lease_key, taken.handle::uuid AS handle, taken.token AS granted, NULL::uuid AS holder, ''::text AS holder_label,
       0::bigint AS holder_token, false AS holder_dead, 0::bigint AS remaining_us
FROM taken
UNION ALL
SELECT DISTINCT ask.lease_key, NULL::uuid, 0::bigint, l.member_id, l.label, l.token,
       l.member_id IS NOT NULL AND (m.member_id IS NULL OR m.expires_at <= clock_timestamp()),
       COALESCE(extract(epoch FROM CASE WHEN pg_catalog.isfinite(LEAST(l.held_until, m.expires_at)) THEN LEAST(l.held_until, m.expires_at) - clock_timestamp() END) * 1000000::numeric, 0)::bigint
FROM ask
JOIN dblock_lease l ON l.lease_key = ask.lease_key
LEFT JOIN dblock_member m ON m.member_id = l.member_id
WHERE (SELECT count(*) FROM taken) < pg_catalog.cardinality(sqlc.arg(lease_keys)::text[])
  AND l.handle IS NOT NULL AND (l.held_until IS NULL OR l.held_until > clock_timestamp())
UNION ALL
SELECT '', NULL, 0, NULL, '', 0, false, 0 WHERE NOT EXISTS (SELECT 1 FROM me);

-- The shared holders of a key, in a statement of its own: after a writer has made itself the holder
-- no more come, and so what is not seen here is none of them.
-- name: ReadReaders :many
SELECT r.member_id, r.label, r.token,
       (r.member_id IS NOT NULL AND (m.member_id IS NULL OR m.expires_at <= clock_timestamp()) OR COALESCE(r.held_until <= clock_timestamp(), false))::boolean AS ended,
       COALESCE(extract(epoch FROM CASE WHEN pg_catalog.isfinite(LEAST(r.held_until, m.expires_at)) THEN LEAST(r.held_until, m.expires_at) - clock_timestamp() END) * 1000000::numeric, 0)::bigint AS remaining_us
FROM dblock_reader r
LEFT JOIN dblock_member m ON m.member_id = r.member_id
WHERE r.lease_key = sqlc.arg(lease_key)
LIMIT 1000;

-- Ends what members that are gone for good hold of a key, and what has ended by itself. What is
-- locked, by a guard for example, is left.
-- name: ReapReaders :execrows
DELETE FROM dblock_reader d
WHERE d.lease_key = sqlc.arg(lease_key) AND d.handle IN (
    SELECT r.handle FROM dblock_reader r
    WHERE r.lease_key = sqlc.arg(lease_key) AND (r.member_id = ANY(sqlc.arg(gones)::uuid[]) OR r.held_until <= clock_timestamp())
      AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
    ORDER BY r.handle
    FOR UPDATE OF r SKIP LOCKED
);

-- Gives back a batch. See ReleaseLeases.
-- name: ReleaseShared :many
WITH ask AS MATERIALIZED (
    SELECT pg_catalog.unnest(sqlc.arg(lease_keys)::text[]) AS lease_key, pg_catalog.unnest(sqlc.arg(handles)::uuid[]) AS handle
), ours AS MATERIALIZED (
    SELECT r.lease_key, r.handle
    FROM ask, dblock_reader r
    WHERE r.lease_key = ask.lease_key AND r.handle = ask.handle
      AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
    ORDER BY r.lease_key, r.handle
    FOR UPDATE OF r SKIP LOCKED
), freed AS (
    DELETE FROM dblock_reader d
    USING ours
    WHERE d.lease_key = ours.lease_key AND d.handle = ours.handle
    RETURNING d.lease_key, d.handle
), told AS (
    SELECT DISTINCT freed.lease_key FROM freed
    WHERE EXISTS (SELECT 1 FROM dblock_lease_waiter w WHERE w.lease_key = freed.lease_key AND w.expires_at > clock_timestamp())
)
SELECT freed.lease_key::text AS lease_key, freed.handle::uuid AS handle, true AS freed,
       COALESCE((SELECT CASE WHEN sqlc.arg(notify)::boolean
                         THEN pg_catalog.pg_notify('dblock_released', pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(told.lease_key, 'UTF8')), 'hex'))::text END
                 FROM told WHERE told.lease_key = freed.lease_key), '')::text AS notified
FROM freed
UNION ALL
SELECT ask.lease_key, ask.handle, false, ''
FROM ask
JOIN dblock_reader r ON r.lease_key = ask.lease_key AND r.handle = ask.handle
WHERE (SELECT count(*) FROM freed) < pg_catalog.cardinality(sqlc.arg(lease_keys)::text[]);

-- name: ExpireShared :execrows
UPDATE dblock_reader r
SET held_until = clock_timestamp() + sqlc.arg(hold_us)::bigint::float8 * interval '1 microsecond'
WHERE r.lease_key = sqlc.arg(lease_key) AND r.token = sqlc.arg(token) AND r.handle = sqlc.arg(handle)
  AND (r.held_until IS NULL OR r.held_until > clock_timestamp())
  AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL;

-- Which of these readers still hold their key.
-- name: HoldingReaders :many
WITH ask AS MATERIALIZED (
    SELECT pg_catalog.unnest(sqlc.arg(lease_keys)::text[]) AS lease_key, pg_catalog.unnest(sqlc.arg(handles)::uuid[]) AS handle
)
SELECT r.lease_key, r.handle
FROM ask
JOIN dblock_reader r ON r.lease_key = ask.lease_key AND r.handle = ask.handle
WHERE r.held_until IS NULL OR r.held_until > clock_timestamp();

-- Makes the sweeper the holder of keys that were shared once, so that no more readers come: whether
-- one came before that is seen in a statement of its own, SweepClaimed. The hold has ended already:
-- a caller that wants the key takes it over.
-- name: ClaimShared :many
UPDATE dblock_lease c
SET handle = sqlc.arg(handle)::uuid, member_id = NULL, held_until = clock_timestamp(), label = '', data = NULL
WHERE c.lease_key IN (
    SELECT l.lease_key FROM dblock_lease l
    WHERE l.lease_key > sqlc.arg(after_key) AND l.lease_key <= sqlc.arg(until_key)
      AND l.changed_at < clock_timestamp() - sqlc.arg(older_us)::bigint::float8 * interval '1 microsecond'
      AND (l.handle IS NULL OR l.held_until <= clock_timestamp() OR l.member_id IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM dblock_member m WHERE m.member_id = l.member_id))
      AND l.shared AND NOT EXISTS (SELECT 1 FROM dblock_reader r WHERE r.lease_key = l.lease_key)
    ORDER BY l.lease_key FOR UPDATE OF l SKIP LOCKED
)
RETURNING c.lease_key;

-- name: SweepClaimed :execrows
DELETE FROM dblock_lease d
WHERE d.lease_key = ANY(sqlc.arg(lease_keys)::text[]) AND d.handle = sqlc.arg(handle)::uuid
  AND NOT EXISTS (SELECT 1 FROM dblock_reader r WHERE r.lease_key = d.lease_key);

-- name: UnclaimShared :exec
UPDATE dblock_lease l SET handle = NULL, held_until = NULL
WHERE l.lease_key = ANY(sqlc.arg(lease_keys)::text[]) AND l.handle = sqlc.arg(handle)::uuid;

-- Readers whose members have been gone for long.
-- name: SweepReaders :execrows
DELETE FROM dblock_reader d
WHERE (d.lease_key, d.handle) IN (
    SELECT r.lease_key, r.handle FROM dblock_reader r
    WHERE r.changed_at < clock_timestamp() - sqlc.arg(older_us)::bigint::float8 * interval '1 microsecond'
      AND (r.held_until <= clock_timestamp() OR r.member_id IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM dblock_member m WHERE m.member_id = r.member_id))
    ORDER BY r.lease_key, r.handle LIMIT sqlc.arg(most) FOR UPDATE OF r SKIP LOCKED
);
