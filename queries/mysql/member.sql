-- Each of these is one autocommit statement on one row. The plus before UTC_TIMESTAMP(6) means
-- nothing to a server: the generator of db/ refuses the function with its digits otherwise.

-- name: Register :exec
INSERT INTO dblock_member (member_id, label, expires_at)
VALUES (sqlc.arg(member_id), sqlc.arg(label), TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(ttl_us) AS SIGNED), +UTC_TIMESTAMP(6)));

-- A heartbeat never revives a member that has expired. It counts from now, also after the server's
-- clock has stepped back: a member that dies then is dead after its TTL. The beat is the statement's
-- insert id, unless a trigger hides it: then ReadHeartbeat reads it.
-- name: Heartbeat :execresult
UPDATE dblock_member m
SET m.beat = LAST_INSERT_ID(m.beat + 1),
    m.expires_at = TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(ttl_us) AS SIGNED), +UTC_TIMESTAMP(6))
WHERE m.member_id = sqlc.arg(member_id) AND m.expires_at > +UTC_TIMESTAMP(6);

-- name: ReadHeartbeat :one
SELECT m.beat FROM dblock_member m WHERE m.member_id = sqlc.arg(member_id) LIMIT 1;

-- All that a member holds is free in this one statement.
-- name: Deregister :exec
DELETE FROM dblock_member WHERE member_id = sqlc.arg(member_id);

-- A heartbeat and an eviction are decided by the row's lock: the second finds nothing.
-- name: Evict :exec
DELETE FROM dblock_member WHERE member_id = sqlc.arg(member_id) AND expires_at <= +UTC_TIMESTAMP(6);

-- In a statement of its own, after the member was seen in something that it holds: a member is
-- committed before anything names it, so one that is not here now is gone for good.
-- name: IsMember :one
SELECT COUNT(*) AS stands FROM dblock_member m WHERE m.member_id = sqlc.arg(member_id) LIMIT 1;

-- Members that expired long ago and were not evicted. They are read without a lock first,
-- and named: a scan that locks would stand in the way of heartbeats.
-- name: ExpiredMembers :many
SELECT m.member_id
FROM dblock_member m
WHERE m.member_id > sqlc.arg(after_id) AND m.expires_at < TIMESTAMPADD(MICROSECOND, 0 - CAST(sqlc.arg(older_us) AS SIGNED), +UTC_TIMESTAMP(6))
ORDER BY m.member_id
LIMIT ?;

-- name: SweepMembers :execrows
DELETE FROM dblock_member
WHERE member_id IN (sqlc.slice(member_ids)) AND expires_at < TIMESTAMPADD(MICROSECOND, 0 - CAST(sqlc.arg(older_us) AS SIGNED), +UTC_TIMESTAMP(6));
