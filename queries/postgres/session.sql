-- Locks that the server keeps for a connection. The functions are called in the select list: in a
-- WHERE, beside an ORDER or a LIMIT, it may call them for rows that are not returned.

-- Does what is asked for with each of some locks, in their order, and waits for none: see
-- session.Op. The waiters for a lock share a second lock, of two numbers: the halves of the lock's
-- own, with bits changed (waitBits), because another program may use the plain halves. A waiter for
-- the lock alone has that of its mark, too. The answers are one value, as a row for each would take
-- the client longer than what it asked for.
-- name: SessionSteps :one
SELECT pg_catalog.array_agg(CASE step.op
    WHEN 0 THEN pg_catalog.pg_try_advisory_lock(step.lock_id)
    WHEN 1 THEN CASE WHEN pg_catalog.pg_try_advisory_xact_lock_shared((step.mark >> 32)::int, (step.mark::bit(32))::int)
                     THEN pg_catalog.pg_try_advisory_lock_shared(step.lock_id) ELSE false END
    WHEN 2 THEN CASE WHEN NOT pg_catalog.pg_advisory_unlock(step.lock_id) THEN false
                     WHEN pg_catalog.pg_try_advisory_xact_lock((step.wait >> 32)::int, (step.wait::bit(32))::int) THEN true
                     ELSE pg_catalog.pg_notify('dblock_session', step.lock_id::text)::text IS NOT NULL END
    WHEN 3 THEN CASE WHEN NOT pg_catalog.pg_advisory_unlock_shared(step.lock_id) THEN false
                     WHEN pg_catalog.pg_try_advisory_xact_lock((step.wait >> 32)::int, (step.wait::bit(32))::int) THEN true
                     ELSE pg_catalog.pg_notify('dblock_session', step.lock_id::text)::text IS NOT NULL END
    WHEN 4 THEN pg_catalog.pg_try_advisory_lock_shared((step.wait >> 32)::int, (step.wait::bit(32))::int)
    WHEN 5 THEN pg_catalog.pg_advisory_unlock_shared((step.wait >> 32)::int, (step.wait::bit(32))::int)
    WHEN 6 THEN pg_catalog.pg_try_advisory_lock((step.mark >> 32)::int, (step.mark::bit(32))::int)
    WHEN 7 THEN pg_catalog.pg_advisory_unlock((step.mark >> 32)::int, (step.mark::bit(32))::int)
    WHEN 8 THEN NOT pg_catalog.pg_try_advisory_xact_lock((step.wait >> 32)::int, (step.wait::bit(32))::int)
    WHEN 9 THEN NOT pg_catalog.pg_try_advisory_xact_lock_shared((step.mark >> 32)::int, (step.mark::bit(32))::int)
    WHEN 10 THEN pg_catalog.pg_advisory_unlock(step.lock_id)
    ELSE pg_catalog.pg_advisory_unlock_shared(step.lock_id)
END)::boolean[] AS done
FROM (
    SELECT each.lock_id, each.mark, each.op, each.lock_id # 7255594130963576273::bigint AS wait
    FROM ROWS FROM (pg_catalog.unnest(sqlc.arg(lock_ids)::bigint[]), pg_catalog.unnest(sqlc.arg(marks)::bigint[]), pg_catalog.unnest(sqlc.arg(ops)::smallint[]))
         AS each(lock_id, mark, op)
) AS step;

-- These two are for a single caller instead: they cost the server less.
-- name: TakeSessionLock :one
SELECT pg_catalog.pg_try_advisory_lock(sqlc.arg(lock_id)::bigint)::boolean AS done;

-- name: FreeSessionLock :one
SELECT (CASE WHEN NOT pg_catalog.pg_advisory_unlock(sqlc.arg(lock_id)::bigint) THEN false
             WHEN pg_catalog.pg_try_advisory_xact_lock(((sqlc.arg(lock_id)::bigint # 7255594130963576273::bigint) >> 32)::int, ((sqlc.arg(lock_id)::bigint # 7255594130963576273::bigint)::bit(32))::int) THEN true
             ELSE pg_catalog.pg_notify('dblock_session', sqlc.arg(lock_id)::bigint::text)::text IS NOT NULL END)::boolean AS done;

-- What this connection has.
-- name: HeldSessionLocks :many
SELECT (l.classid::bigint << 32 | l.objid::bigint)::bigint AS lock_id, (l.objsubid = 2)::boolean AS halves, (l.mode = 'ShareLock')::boolean AS shared
FROM pg_catalog.pg_locks l
WHERE l.locktype = 'advisory' AND l.pid = pg_backend_pid() AND l.granted;

-- name: SessionBackend :one
SELECT pg_backend_pid()::int AS backend;

-- name: NoteSessionKeys :exec
INSERT INTO dblock_session_key AS known (lock_id, namespace, lock_key)
SELECT note.lock_id, sqlc.arg(namespace)::text, note.lock_key
FROM ROWS FROM (pg_catalog.unnest(sqlc.arg(lock_ids)::bigint[]), pg_catalog.unnest(sqlc.arg(lock_keys)::text[])) AS note(lock_id, lock_key)
ORDER BY note.lock_id
ON CONFLICT (lock_id) DO UPDATE SET noted_at = clock_timestamp()
WHERE known.noted_at < clock_timestamp() - interval '30 minutes';

-- name: DeleteSessionKeys :exec
DELETE FROM dblock_session_key k WHERE k.noted_at < clock_timestamp() - interval '1 day';

-- All session locks and transaction locks of this database that are called by one number, with what
-- is known of them.
-- name: ListSessionLocks :many
SELECT (l.classid::bigint << 32 | l.objid::bigint)::bigint AS lock_id, COALESCE(k.namespace, '')::text AS namespace,
       COALESCE(k.lock_key, '')::text AS lock_key, (l.mode = 'ShareLock')::boolean AS shared, l.granted::boolean AS granted,
       COALESCE(l.pid, 0)::int AS backend,
       COALESCE(a.application_name, (SELECT 'prepared transaction '::text || p.gid FROM pg_catalog.pg_prepared_xacts p
            JOIN pg_catalog.pg_locks t ON t.locktype = 'transactionid' AND t.transactionid = p.transaction
            WHERE l.pid IS NULL AND t.pid IS NULL AND t.virtualtransaction = l.virtualtransaction LIMIT 1), '')::text AS application,
       COALESCE(host(a.client_addr), '')::text AS client,
       (SELECT count(*) FROM pg_catalog.pg_locks w
        WHERE w.locktype = 'advisory' AND w.database = l.database AND w.objsubid = 2
          AND (w.classid::bigint << 32 | w.objid::bigint) = ((l.classid::bigint << 32 | l.objid::bigint) # 7255594130963576273::bigint) AND w.pid IS DISTINCT FROM l.pid)::bigint AS waiters
FROM pg_catalog.pg_locks l
LEFT JOIN dblock_session_key k ON k.lock_id = (l.classid::bigint << 32 | l.objid::bigint)
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
ORDER BY k.namespace, k.lock_key, 1, l.granted DESC, l.pid;
