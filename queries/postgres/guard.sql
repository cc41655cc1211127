-- The lease's row stays locked until the end of the caller's transaction, so it cannot be taken
-- over before that. A heartbeat never touches it. If the host has set no bound, the server ends a
-- transaction that is idle for so long: a client that hangs would hold the lease for hours. An
-- advisory lock names the member that the transaction guards for, so that EndStuckGuards finds it.
-- name: Guard :execrows
SELECT CASE pg_catalog.current_setting('idle_in_transaction_session_timeout')
       WHEN '0' THEN pg_catalog.set_config('idle_in_transaction_session_timeout', sqlc.arg(idle_timeout), true) END,
       pg_catalog.pg_advisory_xact_lock_shared(pg_catalog.hashtextextended(COALESCE(l.member_id, l.handle)::text, 0::bigint))
FROM dblock_lease l
WHERE l.lease_key = sqlc.arg(lease_key) AND l.token = sqlc.arg(token) AND l.handle = sqlc.arg(handle)
FOR SHARE;

-- Guard for a key that is held shared: it has no exclusive holder before the transaction ends.
-- name: GuardShared :execrows
SELECT CASE pg_catalog.current_setting('idle_in_transaction_session_timeout')
       WHEN '0' THEN pg_catalog.set_config('idle_in_transaction_session_timeout', sqlc.arg(idle_timeout), true) END,
       pg_catalog.pg_advisory_xact_lock_shared(pg_catalog.hashtextextended(COALESCE(r.member_id, r.handle)::text, 0::bigint))
FROM dblock_reader r
WHERE r.lease_key = sqlc.arg(lease_key) AND r.token = sqlc.arg(token) AND r.handle = sqlc.arg(handle)
FOR SHARE;

-- Guard for permits: all those of the acquisition, or it is not ours any more.
-- name: GuardPermits :execrows
WITH ours AS MATERIALIZED (
    SELECT p.together, COALESCE(p.member_id, p.handle) AS guards FROM dblock_permit p
    WHERE p.lease_key = sqlc.arg(lease_key) AND p.token = sqlc.arg(token) AND p.handle = sqlc.arg(handle)
    ORDER BY p.slot
    FOR SHARE
)
SELECT CASE pg_catalog.current_setting('idle_in_transaction_session_timeout')
       WHEN '0' THEN pg_catalog.set_config('idle_in_transaction_session_timeout', sqlc.arg(idle_timeout), true) END,
       pg_catalog.pg_advisory_xact_lock_shared(pg_catalog.hashtextextended(ours.guards::text, 0::bigint))
FROM ours
GROUP BY ours.together, ours.guards
HAVING count(*) = ours.together;

-- Of a transaction that sees one state of the database throughout: whether it began before the lock
-- was granted, so that it may not see the lock. A token is the time in microseconds at which the
-- lock was granted, or later.
-- name: BeganBefore :one
SELECT (pg_catalog.current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
    AND pg_catalog.date_part('epoch', pg_catalog.transaction_timestamp()) * 1000000::double precision
        < sqlc.arg(token)::bigint::double precision)::boolean AS began_before;

-- Ends the guarded transactions of a member that is gone for good, if the server waits for their
-- client in the middle of a statement: the client has stopped reading a result, or sending one. No
-- timeout of the server ends these.
-- name: EndStuckGuards :many
SELECT pg_catalog.pg_terminate_backend(a.pid)::boolean AS ended
FROM pg_catalog.pg_locks k
JOIN pg_catalog.pg_stat_activity a ON a.pid = k.pid
WHERE k.locktype = 'advisory' AND k.objsubid = 1 AND k.granted
  AND k.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
  AND ((k.classid::bigint << 32) | k.objid::bigint) = pg_catalog.hashtextextended(sqlc.arg(member_id)::uuid::text, 0::bigint)
  AND a.state = 'active' AND a.wait_event_type = 'Client' AND pg_catalog.pg_has_role(a.usesysid, 'MEMBER');

-- A holder that begins to read a resource advances the resource's fence to its token.
-- name: AdvanceFence :execrows
INSERT INTO dblock_fence AS f (resource, token, handle)
VALUES (sqlc.arg(resource), sqlc.arg(token), sqlc.arg(handle))
ON CONFLICT (resource) DO UPDATE SET token = excluded.token, handle = excluded.handle, raised_at = clock_timestamp()
WHERE f.token < excluded.token OR f.token = excluded.token AND f.handle = excluded.handle;

-- A transaction that writes the resource checks that its fence has not advanced, and keeps it so
-- until the transaction ends.
-- name: CheckFence :execrows
SELECT 1 FROM dblock_fence f
WHERE f.resource = sqlc.arg(resource) AND f.token = sqlc.arg(token) AND f.handle = sqlc.arg(handle)
FOR SHARE;
