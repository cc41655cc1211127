-- Each of these is one autocommit statement. See lease.sql.

-- Grants a batch of requests for permits. Several may be for one key. Each permit is a row. A free
-- one is locked, and then belongs to the request, whatever others see at the same time;
-- those that are locked are passed over. A request gets all that it wants, or none; the smallest
-- comes first. Those held past the number, from when there were more, count: as many are locked
-- besides and left free. They only get fewer while the number stays, so that an older snapshot of
-- them does no harm. So the semaphore's row is locked in shared mode, which SetPermits waits for,
-- and nothing is granted if the row that was locked is not the one of the snapshot. It returns what
-- was granted, and of keys of which not all was: the number that is stored (0: there is no such
-- semaphore), how many seem free, and the holders of permits. One row without a key says that the
-- member is gone.
-- name: AcquirePermits :many
WITH me AS MATERIALIZED (
    SELECT m.member_id FROM dblock_member m
    WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= sqlc.arg(beat)::bigint + 1 AND m.expires_at > clock_timestamp()
      AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
), ask AS MATERIALIZED (
    SELECT pg_catalog.unnest(sqlc.arg(lease_keys)::text[]) AS lease_key, pg_catalog.unnest(sqlc.arg(handles)::uuid[]) AS handle,
           pg_catalog.unnest(sqlc.arg(permits)::integer[]) AS permits, pg_catalog.unnest(sqlc.arg(limits)::integer[]) AS most, pg_catalog.unnest(sqlc.arg(labels)::text[]) AS label,
           pg_catalog.unnest(sqlc.arg(datas)::bytea[]) AS data, pg_catalog.unnest(sqlc.arg(hold_us)::bigint[]) AS hold_us,
           pg_catalog.unnest(sqlc.arg(detached)::boolean[]) AS detached
), sema AS MATERIALIZED (
    SELECT s.lease_key, s.changed_at
    FROM me, dblock_semaphore s
    WHERE s.lease_key = ANY(sqlc.arg(lease_keys)::text[])
    ORDER BY s.lease_key
    FOR SHARE OF s SKIP LOCKED
), want AS MATERIALIZED (
    SELECT ask.lease_key, ask.handle, ask.permits, ask.most, ask.label, ask.data, ask.hold_us, ask.detached,
           sum(ask.permits) OVER (PARTITION BY ask.lease_key ORDER BY ask.permits, ask.handle) AS upto
    FROM ask
    JOIN dblock_semaphore s ON s.lease_key = ask.lease_key AND s.permits = ask.most
    JOIN sema ON sema.lease_key = s.lease_key AND sema.changed_at = s.changed_at
), key AS MATERIALIZED (
    SELECT w.lease_key, w.most, w.total,
           (SELECT count(*) FROM dblock_permit h
            WHERE h.lease_key = w.lease_key AND h.slot > w.most AND h.handle IS NOT NULL
              AND (h.held_until IS NULL OR h.held_until > clock_timestamp())) AS past
    FROM (SELECT want.lease_key, want.most, max(want.upto) AS total FROM want GROUP BY want.lease_key, want.most) w
    ORDER BY w.lease_key
), free AS MATERIALIZED (
    SELECT f.lease_key, f.slot, f.token, key.past
    FROM key
    CROSS JOIN LATERAL (
        SELECT p.lease_key, p.slot, p.token
        FROM dblock_permit p
        WHERE p.lease_key = key.lease_key AND p.slot <= key.most AND (p.handle IS NULL OR p.held_until <= clock_timestamp())
          AND p.token < 9223372036854775807::bigint -- else it could not grow, and no other permit would be granted
        ORDER BY p.slot
        LIMIT key.total + key.past
        FOR NO KEY UPDATE OF p SKIP LOCKED
    ) f
), clock AS MATERIALIZED (
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint AS us
), found AS MATERIALIZED (
    SELECT free.lease_key, pg_catalog.array_agg(free.slot ORDER BY free.slot) AS slots, count(*) - max(free.past) AS have, max(free.token) AS latest
    FROM free GROUP BY free.lease_key
), given AS MATERIALIZED (
    SELECT want.lease_key, want.handle, want.permits, want.label, want.data, want.hold_us, want.detached, found.latest,
           found.slots[(want.upto - want.permits + 1)::integer:want.upto::integer] AS slots
    FROM want JOIN found ON found.lease_key = want.lease_key AND want.upto <= found.have
), taken AS (
    UPDATE dblock_permit p
    SET token = GREATEST(given.latest + 1, (SELECT clock.us FROM clock)),
        handle = given.handle, together = given.permits, member_id = CASE WHEN given.detached THEN NULL ELSE sqlc.arg(member_id)::uuid END,
        held_until = clock_timestamp() + NULLIF(given.hold_us, 0)::float8 * interval '1 microsecond',
        changed_at = clock_timestamp(), label = COALESCE(given.label, ''), data = given.data
    FROM given
    WHERE p.lease_key = given.lease_key AND p.slot = ANY(given.slots)
    RETURNING p.lease_key, p.handle, p.token
), granted AS (
    SELECT taken.lease_key, taken.handle, max(taken.token) AS token FROM taken GROUP BY taken.lease_key, taken.handle
), refused AS MATERIALIZED (
    SELECT DISTINCT ask.lease_key FROM ask WHERE (SELECT count(*) FROM granted) < pg_catalog.cardinality(sqlc.arg(lease_keys)::text[])
), seen AS MATERIALIZED (
    SELECT refused.lease_key, COALESCE(s.permits, 0) AS stored,
           (SELECT COALESCE(sum(CASE WHEN f.slot > s.permits THEN -1 ELSE 1 END), 0) FROM dblock_permit f
            WHERE f.lease_key = refused.lease_key
              AND (f.slot <= s.permits) = (f.handle IS NULL OR COALESCE(f.held_until <= clock_timestamp(), false))) AS usable
    FROM refused
    LEFT JOIN dblock_semaphore s ON s.lease_key = refused.lease_key
)
SELECT granted.lease_key::text AS lease_key, granted.handle::uuid AS handle, granted.token::bigint AS granted, 0::integer AS stored, 0::bigint AS usable, NULL::uuid AS holder,
       ''::text AS holder_label, 0::bigint AS holder_token, false AS holder_dead, 0::bigint AS remaining_us
FROM granted
UNION ALL
SELECT DISTINCT ON (seen.lease_key, p.member_id) seen.lease_key, NULL::uuid, 0::bigint, seen.stored, seen.usable, p.member_id, COALESCE(p.label, ''), COALESCE(p.token, 0),
       p.member_id IS NOT NULL AND (m.member_id IS NULL OR m.expires_at <= clock_timestamp()),
       COALESCE(extract(epoch FROM CASE WHEN pg_catalog.isfinite(LEAST(p.held_until, m.expires_at)) THEN LEAST(p.held_until, m.expires_at) - clock_timestamp() END) * 1000000::numeric, 0)::bigint
FROM seen
LEFT JOIN dblock_permit p ON p.lease_key = seen.lease_key AND p.handle IS NOT NULL AND (p.held_until IS NULL OR p.held_until > clock_timestamp())
LEFT JOIN dblock_member m ON m.member_id = p.member_id
UNION ALL
SELECT '', NULL, 0, 0, 0, NULL, '', 0, false, 0 WHERE NOT EXISTS (SELECT 1 FROM me);

-- Makes what is missing of a semaphore's permits. They are made before the semaphore, so that each
-- reader of it finds them all.
-- name: InsertPermits :exec
INSERT INTO dblock_permit (lease_key, slot)
SELECT sqlc.arg(lease_key), pg_catalog.generate_series(1, sqlc.arg(permits)::integer)
WHERE pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
ON CONFLICT (lease_key, slot) DO NOTHING;

-- name: InsertSemaphore :exec
INSERT INTO dblock_semaphore (lease_key, permits)
SELECT sqlc.arg(lease_key), sqlc.arg(permits)::integer
WHERE pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
ON CONFLICT (lease_key) DO NOTHING;

-- Gives a semaphore another number of permits, and notifies the waiters.
-- name: SetPermits :one
WITH changed AS (
    INSERT INTO dblock_semaphore AS s (lease_key, permits) VALUES (sqlc.arg(lease_key), sqlc.arg(permits))
    ON CONFLICT (lease_key) DO UPDATE SET permits = excluded.permits, changed_at = clock_timestamp()
    RETURNING s.lease_key
)
SELECT COALESCE(CASE WHEN sqlc.arg(notify)::boolean
                THEN pg_catalog.pg_notify('dblock_released', pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(changed.lease_key, 'UTF8')), 'hex'))::text END, '')::text AS notified
FROM changed;

-- Ends what members that are gone for good hold of a semaphore. What is locked, by a guard for
-- example, is left.
-- name: ReapPermits :execrows
UPDATE dblock_permit d
SET handle = NULL, together = 0, member_id = NULL, held_until = NULL, changed_at = clock_timestamp(), label = '', data = NULL
WHERE d.lease_key = sqlc.arg(lease_key) AND d.slot = ANY(ARRAY(
    SELECT p.slot FROM dblock_permit p
    WHERE p.lease_key = sqlc.arg(lease_key) AND p.member_id = ANY(sqlc.arg(gones)::uuid[])
      AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
    ORDER BY p.slot
    FOR NO KEY UPDATE OF p SKIP LOCKED
));

-- Gives back a batch, all permits of each acquisition or none. See ReleaseLeases. A handle is of
-- one key. Each row is counted once, by a window: a count for each row would take quadratic time,
-- and an acquisition may have 10,000 rows. The rows to free are named by arrays, so that each is
-- found by the primary key.
-- name: ReleasePermits :many
WITH ours AS MATERIALIZED (
    SELECT p.lease_key, p.slot, p.handle
    FROM dblock_permit p
    WHERE p.lease_key = ANY(sqlc.arg(lease_keys)::text[]) AND p.handle = ANY(sqlc.arg(handles)::uuid[])
      AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
    ORDER BY p.lease_key, p.slot
    FOR NO KEY UPDATE OF p SKIP LOCKED
), counted AS MATERIALIZED (
    SELECT r.lease_key, r.handle, pg_catalog.array_agg(r.slot) FILTER (WHERE r.is_ours) AS slots,
           count(*) FILTER (WHERE r.is_ours) = count(*) FILTER (WHERE NOT r.is_ours) AS whole
    FROM (
        SELECT ours.lease_key, ours.slot, ours.handle, true AS is_ours FROM ours
        UNION ALL
        SELECT a.lease_key, a.slot, a.handle, false
        FROM dblock_permit a
        WHERE a.lease_key = ANY(sqlc.arg(lease_keys)::text[]) AND a.handle = ANY(sqlc.arg(handles)::uuid[])
    ) r
    GROUP BY r.lease_key, r.handle
), freed AS (
    UPDATE dblock_permit p
    SET handle = NULL, together = 0, member_id = NULL, held_until = NULL, changed_at = clock_timestamp(), label = '', data = NULL
    FROM counted
    WHERE counted.whole AND p.lease_key = counted.lease_key AND p.slot = ANY(counted.slots)
    RETURNING p.lease_key, counted.handle
), ended AS MATERIALIZED (
    SELECT DISTINCT freed.lease_key, freed.handle FROM freed
)
SELECT ended.lease_key::text AS lease_key, ended.handle::uuid AS handle, true AS freed,
       COALESCE(CASE WHEN sqlc.arg(notify)::boolean
                 AND EXISTS (SELECT 1 FROM dblock_lease_waiter w WHERE w.lease_key = ended.lease_key AND w.expires_at > clock_timestamp())
                THEN pg_catalog.pg_notify('dblock_released', pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(ended.lease_key, 'UTF8')), 'hex'))::text END, '')::text AS notified
FROM ended
UNION ALL
SELECT counted.lease_key, counted.handle, false, ''
FROM counted
WHERE NOT counted.whole;

-- name: ExpirePermits :execrows
UPDATE dblock_permit p
SET held_until = clock_timestamp() + sqlc.arg(hold_us)::bigint::float8 * interval '1 microsecond'
WHERE p.lease_key = sqlc.arg(lease_key) AND p.token = sqlc.arg(token) AND p.handle = sqlc.arg(handle)
  AND (p.held_until IS NULL OR p.held_until > clock_timestamp())
  AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL;

-- Which of these acquisitions still hold all of their permits.
-- name: HoldingPermits :many
WITH ask AS MATERIALIZED (
    SELECT pg_catalog.unnest(sqlc.arg(lease_keys)::text[]) AS lease_key, pg_catalog.unnest(sqlc.arg(handles)::uuid[]) AS handle
)
SELECT p.lease_key, p.handle
FROM ask
JOIN dblock_permit p ON p.lease_key = ask.lease_key AND p.handle = ask.handle
WHERE p.held_until IS NULL OR p.held_until > clock_timestamp()
GROUP BY p.lease_key, p.handle, p.together
HAVING count(*) = p.together::bigint;
