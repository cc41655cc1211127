-- The lease's row stays locked till the end of the caller's transaction, so nobody can take it over
-- before that. A heartbeat never touches it. Where the host has set no bound, a transaction that is idle
-- for so long is ended: a client that hangs would hold the lease for hours.
-- name: Guard :execrows
SELECT CASE current_setting('idle_in_transaction_session_timeout')
       WHEN '0' THEN set_config('idle_in_transaction_session_timeout', sqlc.arg(idle_timeout), true) END
FROM dblock_lease l
WHERE l.lease_key = sqlc.arg(lease_key) AND l.token = sqlc.arg(token) AND l.handle = sqlc.arg(handle)
FOR SHARE;

-- Guard for a key that is held shared: nobody has it for itself before the transaction ends.
-- name: GuardShared :execrows
SELECT CASE current_setting('idle_in_transaction_session_timeout')
       WHEN '0' THEN set_config('idle_in_transaction_session_timeout', sqlc.arg(idle_timeout), true) END
FROM dblock_reader r
WHERE r.lease_key = sqlc.arg(lease_key) AND r.token = sqlc.arg(token) AND r.handle = sqlc.arg(handle)
FOR SHARE;

-- Guard for permits: all those of the acquisition, or it is not ours any more.
-- name: GuardPermits :execrows
WITH ours AS MATERIALIZED (
    SELECT p.together FROM dblock_permit p
    WHERE p.lease_key = sqlc.arg(lease_key) AND p.token = sqlc.arg(token) AND p.handle = sqlc.arg(handle)
    ORDER BY p.slot
    FOR SHARE
)
SELECT CASE current_setting('idle_in_transaction_session_timeout')
       WHEN '0' THEN set_config('idle_in_transaction_session_timeout', sqlc.arg(idle_timeout), true) END
FROM ours
GROUP BY ours.together
HAVING count(*) = ours.together;

-- Whoever begins to read a resource raises its fence to its own token.
-- name: Raise :execrows
INSERT INTO dblock_fence AS f (resource, token, handle)
VALUES (sqlc.arg(resource), sqlc.arg(token), sqlc.arg(handle))
ON CONFLICT (resource) DO UPDATE SET token = excluded.token, handle = excluded.handle, raised_at = clock_timestamp()
WHERE f.token < excluded.token OR f.token = excluded.token AND f.handle = excluded.handle;

-- Whoever writes it checks that nobody has raised it since; and nobody does before its transaction ends.
-- name: CheckRaised :execrows
SELECT 1 FROM dblock_fence f
WHERE f.resource = sqlc.arg(resource) AND f.token = sqlc.arg(token) AND f.handle = sqlc.arg(handle)
FOR SHARE;
