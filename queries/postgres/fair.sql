-- Each of these is one autocommit statement. See lease.sql.

-- Notes a batch of calls that wait, in their order.
-- name: Enqueue :many
INSERT INTO dblock_ticket (lease_key, handle, member_id, detached, hold_us, label, data)
SELECT ask.lease_key, ask.handle, m.member_id, COALESCE(ask.detached, false), COALESCE(ask.hold_us, 0), COALESCE(ask.label, ''), ask.data
FROM dblock_member m, (
    SELECT pg_catalog.unnest(sqlc.arg(lease_keys)::text[]) AS lease_key, pg_catalog.unnest(sqlc.arg(handles)::uuid[]) AS handle,
           pg_catalog.unnest(sqlc.arg(labels)::text[]) AS label, pg_catalog.unnest(sqlc.arg(datas)::bytea[]) AS data,
           pg_catalog.unnest(sqlc.arg(hold_us)::bigint[]) AS hold_us, pg_catalog.unnest(sqlc.arg(detached)::boolean[]) AS detached,
           pg_catalog.generate_series(1, pg_catalog.cardinality(sqlc.arg(lease_keys)::text[])) AS nth
) ask
WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= sqlc.arg(beat)::bigint + 1 AND m.expires_at > clock_timestamp()
ORDER BY ask.nth
RETURNING handle, ticket;

-- What has become of a call that waits: the key is its own, or another holder's, or free, for
-- example for readers; and whether its ticket is there, and counts. A row that readers may have is
-- no grant: a process of an older version may have served the ticket beside them. unconfirmed: see
-- ConfirmCommits.
-- name: ReadTicket :one
SELECT CASE WHEN l.handle = sqlc.arg(handle) AND NOT l.shared AND (l.held_until IS NULL OR l.held_until > clock_timestamp()) THEN l.token ELSE 0 END::bigint AS granted,
       (l.handle IS NOT NULL AND (l.held_until IS NULL OR l.held_until > clock_timestamp()))::boolean AS held,
       l.handle, l.shared, l.member_id AS holder, l.label AS holder_label, l.token AS holder_token,
       (l.member_id IS NOT NULL AND (m.member_id IS NULL OR m.expires_at <= clock_timestamp()))::boolean AS holder_dead,
       COALESCE(extract(epoch FROM CASE WHEN pg_catalog.isfinite(LEAST(l.held_until, m.expires_at)) THEN LEAST(l.held_until, m.expires_at) - clock_timestamp() END) * 1000000::numeric, 0)::bigint AS remaining_us,
       COALESCE(extract(epoch FROM CASE WHEN pg_catalog.isfinite(l.held_until) THEN l.held_until - clock_timestamp() END) * 1000000::numeric, 0)::bigint AS hold_us,
       EXISTS (SELECT 1 FROM dblock_ticket q JOIN dblock_member w ON w.member_id = q.member_id AND w.expires_at > clock_timestamp()
               WHERE q.lease_key = l.lease_key AND q.ticket = sqlc.arg(ticket) AND q.handle = sqlc.arg(handle)) AS waits,
       (pg_catalog.current_setting('synchronous_standby_names') <> ''::text)::boolean AS unconfirmed
FROM dblock_lease l
LEFT JOIN dblock_member m ON m.member_id = l.member_id
WHERE l.lease_key = sqlc.arg(lease_key);

-- Releases a batch of handles, which may have a key more than once. A key that was held by one of
-- them becomes that of the lowest ticket whose member is alive. Lower tickets are of dead members,
-- or are locked as they are withdrawn. No ticket is waited for: a withdrawal may wait for the one
-- that is granted. A key that readers may have is granted to no waiter: the next one looks for the
-- readers first. It returns what was freed, and what was held when it began: of that, what was not
-- freed was locked. The new holder is notified by its handle, or else those that wait without
-- tickets.
-- name: HandOff :many
WITH ask AS MATERIALIZED (
    SELECT pg_catalog.unnest(sqlc.arg(lease_keys)::text[]) AS lease_key, pg_catalog.unnest(sqlc.arg(handles)::uuid[]) AS handle
), ours AS MATERIALIZED (
    SELECT l.lease_key, l.handle, l.shared
    FROM ask, dblock_lease l
    WHERE l.lease_key = ask.lease_key AND l.handle = ask.handle
      AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
    ORDER BY l.lease_key
    FOR NO KEY UPDATE OF l SKIP LOCKED
), next AS MATERIALIZED (
    SELECT n.lease_key, n.ticket, n.handle, n.member_id, n.detached, n.hold_us, n.label, n.data
    FROM ours
    CROSS JOIN LATERAL (
        SELECT q.lease_key, q.ticket, q.handle, q.member_id, q.detached, q.hold_us, q.label, q.data
        FROM dblock_ticket q
        JOIN dblock_member m ON m.member_id = q.member_id AND m.expires_at > clock_timestamp()
        WHERE q.lease_key = ours.lease_key AND q.handle <> ours.handle AND NOT ours.shared
        ORDER BY q.ticket
        LIMIT 1
        FOR UPDATE OF q SKIP LOCKED
    ) n
), served AS (
    DELETE FROM dblock_ticket d USING (
        SELECT q.lease_key, q.ticket FROM next JOIN dblock_ticket q ON q.lease_key = next.lease_key AND q.ticket <= next.ticket
        FOR UPDATE OF q SKIP LOCKED
    ) q
    WHERE d.lease_key = q.lease_key AND d.ticket = q.ticket
), passed AS (
    UPDATE dblock_lease l
    SET token = CASE WHEN next.handle IS NULL THEN l.token
                     ELSE GREATEST(l.token + 1, (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint) END,
        handle = next.handle, member_id = CASE WHEN next.detached THEN NULL ELSE next.member_id END,
        held_until = clock_timestamp() + NULLIF(next.hold_us, 0)::float8 * interval '1 microsecond',
        changed_at = clock_timestamp(), label = COALESCE(next.label, ''), data = next.data
    FROM ours
    LEFT JOIN next ON next.lease_key = ours.lease_key
    WHERE l.lease_key = ours.lease_key
    RETURNING l.lease_key, ours.handle AS was, l.handle
)
SELECT passed.lease_key::text AS lease_key, passed.was::uuid AS handle, true AS freed,
       COALESCE(CASE WHEN NOT sqlc.arg(notify)::boolean THEN NULL
                     WHEN passed.handle IS NOT NULL THEN pg_catalog.pg_notify('dblock_released', chr(1) || replace(passed.handle::text, '-', ''))::text
                     WHEN EXISTS (SELECT 1 FROM dblock_lease_waiter w WHERE w.lease_key = passed.lease_key AND w.expires_at > clock_timestamp())
                     THEN pg_catalog.pg_notify('dblock_released', pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(passed.lease_key, 'UTF8')), 'hex'))::text END, '')::text AS notified
FROM passed
UNION ALL
SELECT ask.lease_key, ask.handle, false, ''
FROM ask
JOIN dblock_lease l ON l.lease_key = ask.lease_key AND l.handle = ask.handle
WHERE (SELECT count(*) FROM passed) < pg_catalog.cardinality(sqlc.arg(lease_keys)::text[]);

-- Withdraws tickets: afterwards they are granted nothing. A ticket that is granted at this moment
-- is waited for.
-- name: DeleteTickets :execrows
DELETE FROM dblock_ticket d
WHERE (d.lease_key, d.ticket) IN (
    SELECT q.lease_key, q.ticket FROM dblock_ticket q
    WHERE q.lease_key = ANY(sqlc.arg(lease_keys)::text[]) AND q.handle = ANY(sqlc.arg(handles)::uuid[])
      AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
    ORDER BY q.lease_key, q.ticket
    FOR UPDATE OF q
);

-- Grants a free key to the next waiter, and notifies it.
-- name: Serve :many
WITH free AS MATERIALIZED (
    SELECT l.lease_key
    FROM dblock_lease l
    WHERE l.lease_key = sqlc.arg(lease_key) AND NOT l.shared
      AND (l.handle IS NULL OR l.member_id = sqlc.arg(gone) OR l.held_until <= clock_timestamp())
      AND pg_catalog.set_config('lock_timeout', sqlc.arg(lock_timeout), true) IS NOT NULL
    FOR NO KEY UPDATE OF l SKIP LOCKED
), next AS MATERIALIZED (
    SELECT n.lease_key, n.ticket, n.handle, n.member_id, n.detached, n.hold_us, n.label, n.data
    FROM free
    CROSS JOIN LATERAL (
        SELECT q.lease_key, q.ticket, q.handle, q.member_id, q.detached, q.hold_us, q.label, q.data
        FROM dblock_ticket q
        JOIN dblock_member m ON m.member_id = q.member_id AND m.expires_at > clock_timestamp()
        WHERE q.lease_key = free.lease_key
        ORDER BY q.ticket
        LIMIT 1
        FOR UPDATE OF q SKIP LOCKED
    ) n
), served AS (
    DELETE FROM dblock_ticket d USING (
        SELECT q.lease_key, q.ticket FROM next JOIN dblock_ticket q ON q.lease_key = next.lease_key AND q.ticket <= next.ticket
        FOR UPDATE OF q SKIP LOCKED
    ) q
    WHERE d.lease_key = q.lease_key AND d.ticket = q.ticket
), granted AS (
    UPDATE dblock_lease l
    SET token = GREATEST(l.token + 1, (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint),
        handle = next.handle, member_id = CASE WHEN next.detached THEN NULL ELSE next.member_id END,
        held_until = clock_timestamp() + NULLIF(next.hold_us, 0)::float8 * interval '1 microsecond',
        changed_at = clock_timestamp(), label = next.label, data = next.data
    FROM next
    WHERE l.lease_key = next.lease_key
    RETURNING l.handle
)
SELECT granted.handle::uuid AS handle, COALESCE(CASE WHEN sqlc.arg(notify)::boolean
       THEN pg_catalog.pg_notify('dblock_released', chr(1) || replace(granted.handle::text, '-', ''))::text END, '')::text AS notified
FROM granted;

-- Tickets of members that are gone.
-- name: SweepTickets :execrows
DELETE FROM dblock_ticket d
WHERE (d.lease_key, d.ticket) IN (
    SELECT q.lease_key, q.ticket FROM dblock_ticket q
    WHERE NOT EXISTS (SELECT 1 FROM dblock_member m WHERE m.member_id = q.member_id)
    ORDER BY q.lease_key, q.ticket LIMIT sqlc.arg(most) FOR UPDATE OF q SKIP LOCKED
);
