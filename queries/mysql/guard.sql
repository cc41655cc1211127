-- The lease's row stays locked till the end of the caller's transaction, so no other process can
-- take it over before that. A heartbeat never touches it. (MariaDB has no FOR SHARE.)
-- name: Guard :many
SELECT 1 AS ours FROM dblock_lease l
WHERE l.lease_key = sqlc.arg(lease_key) AND l.token = sqlc.arg(token) AND l.handle = CAST(sqlc.arg(handle) AS BINARY)
LIMIT 18446744073709551615
LOCK IN SHARE MODE;

-- Guard for a key that is held shared: it has no exclusive holder before the transaction ends.
-- name: GuardShared :many
SELECT 1 AS ours FROM dblock_reader r
WHERE r.lease_key = sqlc.arg(lease_key) AND r.token = sqlc.arg(token) AND r.handle = sqlc.arg(handle)
LIMIT 18446744073709551615
LOCK IN SHARE MODE;

-- Guard for permits: all those of the acquisition, or it is not ours any more. They are named, as
-- PermitSlots found them: a search with locks would lock those of others, too.
-- name: GuardPermits :many
SELECT p.together FROM dblock_permit p FORCE INDEX (PRIMARY)
WHERE p.lease_key = sqlc.arg(lease_key) AND p.slot IN (sqlc.slice(slots))
  AND p.token = sqlc.arg(token) AND p.handle = CAST(sqlc.arg(handle) AS BINARY)
LIMIT 18446744073709551615
LOCK IN SHARE MODE;

-- GuardPermits for a transaction whose snapshot is older than the permits.
-- name: GuardPermitsUnseen :many
SELECT p.together FROM dblock_permit p FORCE INDEX (PRIMARY)
WHERE p.lease_key = sqlc.arg(lease_key) AND p.token = sqlc.arg(token) AND p.handle = CAST(sqlc.arg(handle) AS BINARY)
LIMIT 18446744073709551615
LOCK IN SHARE MODE;

-- A holder that begins to read a resource advances the resource's fence to its token. The
-- assignments run from left to right: token comes last. CheckFence reports whether the fence has
-- advanced.
-- name: AdvanceFence :exec
INSERT INTO dblock_fence (resource, token, handle, raised_at)
VALUES (sqlc.arg(resource), sqlc.arg(token), sqlc.arg(handle), DEFAULT)
ON DUPLICATE KEY UPDATE
    raised_at = IF(dblock_fence.token < VALUES(token), VALUES(raised_at), dblock_fence.raised_at),
    handle = IF(dblock_fence.token < VALUES(token), VALUES(handle), dblock_fence.handle),
    token = GREATEST(dblock_fence.token, VALUES(token));

-- A transaction that writes the resource checks that its fence has not advanced, and keeps it so
-- until the transaction ends.
-- name: CheckFence :many
SELECT 1 AS ours FROM dblock_fence f
WHERE f.resource = sqlc.arg(resource) AND f.token = sqlc.arg(token) AND f.handle = CAST(sqlc.arg(handle) AS BINARY)
LIMIT 18446744073709551615
LOCK IN SHARE MODE;
