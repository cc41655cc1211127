-- name: Register :exec
INSERT INTO dblock_member (member_id, label, expires_at)
VALUES (sqlc.arg(member_id), sqlc.arg(label), clock_timestamp() + sqlc.arg(ttl_us)::bigint::float8 * interval '1 microsecond');

-- A heartbeat never revives a member that has expired. It counts from now, also after the server's
-- clock has stepped back: a member that dies then is dead after its TTL.
-- name: Heartbeat :one
UPDATE dblock_member m
SET beat = m.beat + 1,
    expires_at = clock_timestamp() + sqlc.arg(ttl_us)::bigint::float8 * interval '1 microsecond'
WHERE m.member_id = sqlc.arg(member_id) AND m.expires_at > clock_timestamp()
RETURNING m.beat;

-- All that a member holds is free in this one statement.
-- name: Deregister :exec
DELETE FROM dblock_member m WHERE m.member_id = sqlc.arg(member_id);

-- A heartbeat and an eviction are decided by the row's lock: the second finds nothing.
-- name: Evict :exec
DELETE FROM dblock_member m WHERE m.member_id = sqlc.arg(member_id) AND m.expires_at <= clock_timestamp();

-- In a statement of its own, after the member was seen in something that it holds: a member is
-- committed before anything names it, so one that is not here now is gone for good.
-- name: IsMember :one
SELECT EXISTS (SELECT 1 FROM dblock_member m WHERE m.member_id = sqlc.arg(member_id))::boolean AS stands;

-- Members that expired an hour ago and were not evicted, in steps along the key.
-- name: SweepMembers :execrows
DELETE FROM dblock_member d
WHERE d.member_id IN (
    SELECT m.member_id FROM dblock_member m
    WHERE m.expires_at < clock_timestamp() - sqlc.arg(older_us)::bigint::float8 * interval '1 microsecond'
    ORDER BY m.member_id LIMIT sqlc.arg(most) FOR UPDATE SKIP LOCKED
);
