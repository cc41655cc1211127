-- Unique keys and groups. A transaction that needs locks of both kinds takes those of
-- dblock_queue_unique first, then those of dblock_queue_key, each in the order of the key, and none
-- that is shared before one that is not. Asks and rows come in the order of the keys.

-- A key that is taken is locked as one that is not: it is still as it was.
-- name: TakeUnique :exec
INSERT INTO dblock_queue_unique (queue, unique_key, job_id)
VALUES /*dblock:rows*/(sqlc.arg(queue), sqlc.arg(unique_key), sqlc.arg(job_id))/*dblock:end*/
ON DUPLICATE KEY UPDATE job_id = dblock_queue_unique.job_id;

-- name: KeyHolders :many
SELECT u.queue, u.unique_key, u.job_id
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(queue) AS BINARY) AS queue, CAST(sqlc.arg(unique_key) AS BINARY) AS unique_key
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_unique u FORCE INDEX (PRIMARY) ON u.queue = ask.queue AND u.unique_key = ask.unique_key
LIMIT 18446744073709551615;

-- The same of keys that are locked, whatever the transaction has read before.
-- name: LockedHolders :many
SELECT u.queue, u.unique_key, u.job_id
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(queue) AS BINARY) AS queue, CAST(sqlc.arg(unique_key) AS BINARY) AS unique_key
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_unique u FORCE INDEX (PRIMARY) ON u.queue = ask.queue AND u.unique_key = ask.unique_key
LIMIT 18446744073709551615
FOR UPDATE;

-- name: EnqueueKeyed :exec
INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, payload, unique_key, group_key, group_most)
VALUES /*dblock:rows*/(sqlc.arg(job_id), sqlc.arg(queue), sqlc.arg(kind), sqlc.arg(priority), sqlc.arg(max_attempts), sqlc.arg(payload),
        NULLIF(sqlc.arg(unique_key), ''), NULLIF(sqlc.arg(group_key), ''), NULLIF(sqlc.arg(group_most), 0))/*dblock:end*/;

-- name: ScheduleGrouped :exec
INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority, group_key)
VALUES /*dblock:rows*/(TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(delay_us) AS SIGNED), +UTC_TIMESTAMP(6)), sqlc.arg(job_id), sqlc.arg(queue), sqlc.arg(priority),
        sqlc.arg(group_key))/*dblock:end*/;

-- Locks groups, and makes those that there are not.
-- name: OpenGroups :exec
INSERT INTO dblock_queue_key (queue, group_key, most, taken)
VALUES /*dblock:rows*/(sqlc.arg(queue), sqlc.arg(group_key), sqlc.arg(most), 0)/*dblock:end*/
ON DUPLICATE KEY UPDATE taken = dblock_queue_key.taken;

-- name: GroupLimits :many
SELECT k.queue, k.group_key, k.most
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(queue) AS BINARY) AS queue, CAST(sqlc.arg(group_key) AS BINARY) AS group_key
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_key k FORCE INDEX (PRIMARY) ON k.queue = ask.queue AND k.group_key = ask.group_key
LIMIT 18446744073709551615;

-- name: LockGroups :many
SELECT k.queue, k.group_key, k.most, k.taken, k.next_seq
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(queue) AS BINARY) AS queue, CAST(sqlc.arg(group_key) AS BINARY) AS group_key
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_key k FORCE INDEX (PRIMARY) ON k.queue = ask.queue AND k.group_key = ask.group_key
LIMIT 18446744073709551615
FOR UPDATE;

-- The same of unique keys and of groups, which does not wait.
-- name: LockUniqueNoWait :many
SELECT u.job_id
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(queue) AS BINARY) AS queue, CAST(sqlc.arg(unique_key) AS BINARY) AS unique_key
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_unique u FORCE INDEX (PRIMARY) ON u.queue = ask.queue AND u.unique_key = ask.unique_key
LIMIT 18446744073709551615
FOR UPDATE NOWAIT;

-- name: LockGroupsNoWait :many
SELECT k.queue, k.group_key, k.most, k.taken, k.next_seq
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(queue) AS BINARY) AS queue, CAST(sqlc.arg(group_key) AS BINARY) AS group_key
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_key k FORCE INDEX (PRIMARY) ON k.queue = ask.queue AND k.group_key = ask.group_key
LIMIT 18446744073709551615
FOR UPDATE NOWAIT;

-- Those of some unique keys and groups whose rows no other transaction has locked.
-- name: UnlockedUnique :many
SELECT u.queue, u.unique_key
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(queue) AS BINARY) AS queue, CAST(sqlc.arg(unique_key) AS BINARY) AS unique_key
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_unique u FORCE INDEX (PRIMARY) ON u.queue = ask.queue AND u.unique_key = ask.unique_key
LIMIT 18446744073709551615
FOR UPDATE SKIP LOCKED;

-- name: UnlockedGroups :many
SELECT k.queue, k.group_key
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(queue) AS BINARY) AS queue, CAST(sqlc.arg(group_key) AS BINARY) AS group_key
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_key k FORCE INDEX (PRIMARY) ON k.queue = ask.queue AND k.group_key = ask.group_key
LIMIT 18446744073709551615
FOR UPDATE SKIP LOCKED;

-- name: CountGroups :exec
UPDATE ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(queue) AS BINARY) AS queue, CAST(sqlc.arg(group_key) AS BINARY) AS group_key, CAST(sqlc.arg(most) AS SIGNED) AS most,
           CAST(sqlc.arg(taken) AS SIGNED) AS taken, CAST(sqlc.arg(next_seq) AS SIGNED) AS next_seq
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_key k FORCE INDEX (PRIMARY) ON k.queue = ask.queue AND k.group_key = ask.group_key
SET k.most = ask.most, k.taken = ask.taken, k.next_seq = ask.next_seq;

-- name: EndGroups :exec
DELETE k
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(queue) AS BINARY) AS queue, CAST(sqlc.arg(group_key) AS BINARY) AS group_key
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_key k FORCE INDEX (PRIMARY) ON k.queue = ask.queue AND k.group_key = ask.group_key;

-- name: BlockJobs :exec
INSERT INTO dblock_queue_blocked (queue, group_key, seq, job_id, priority)
VALUES /*dblock:rows*/(sqlc.arg(queue), sqlc.arg(group_key), sqlc.arg(seq), sqlc.arg(job_id), sqlc.arg(priority))/*dblock:end*/;

-- The waiting job of a group whose number is that of the first one plus an offset. There is no row
-- if that job is gone. The server reads these two rows only. For MIN(x.seq), or for a range of
-- b.seq that depends on a subquery, it reads all jobs of the group.
-- name: BlockedHeads :many
SELECT b.queue, b.group_key, b.seq, b.job_id, b.priority
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(queue) AS BINARY) AS queue, CAST(sqlc.arg(group_key) AS BINARY) AS group_key, CAST(sqlc.arg(behind) AS SIGNED) AS behind
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_blocked b FORCE INDEX (PRIMARY)
ON b.queue = ask.queue AND b.group_key = ask.group_key
AND b.seq = ask.behind + (
    SELECT x.seq FROM dblock_queue_blocked x FORCE INDEX (PRIMARY) WHERE x.queue = ask.queue AND x.group_key = ask.group_key
    ORDER BY x.queue, x.group_key, x.seq LIMIT 1
)
ORDER BY b.queue, b.group_key, b.seq
LIMIT 18446744073709551615;

-- The first of those that wait in a group, as they are now, whatever the transaction has read
-- before.
-- name: LockBlocked :many
SELECT b.queue, b.group_key, b.seq, b.job_id, b.priority
FROM dblock_queue_blocked b FORCE INDEX (PRIMARY)
WHERE b.queue = sqlc.arg(queue) AND b.group_key = sqlc.arg(group_key)
ORDER BY b.queue, b.group_key, b.seq
LIMIT ?
FOR UPDATE;

-- name: Unblock :exec
DELETE b
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(queue) AS BINARY) AS queue, CAST(sqlc.arg(group_key) AS BINARY) AS group_key, CAST(sqlc.arg(seq) AS SIGNED) AS seq
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_blocked b FORCE INDEX (PRIMARY) ON b.queue = ask.queue AND b.group_key = ask.group_key AND b.seq = ask.seq;

-- name: FreeUnique :exec
DELETE u
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(queue) AS BINARY) AS queue, CAST(sqlc.arg(unique_key) AS BINARY) AS unique_key, CAST(sqlc.arg(job_id) AS BINARY) AS job_id
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_unique u FORCE INDEX (PRIMARY) ON u.queue = ask.queue AND u.unique_key = ask.unique_key
WHERE u.job_id = ask.job_id;

-- The keys of jobs.
-- name: KeysOfJobs :many
SELECT j.job_id, j.queue, j.priority, j.unique_key, j.group_key, COALESCE(j.group_most, 0) AS group_most
FROM dblock_queue_job j
WHERE j.job_id IN (sqlc.slice(job_ids)) AND (j.unique_key IS NOT NULL OR j.group_key IS NOT NULL)
LIMIT 18446744073709551615;
