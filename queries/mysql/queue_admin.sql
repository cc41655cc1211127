-- What people ask and say: how a queue does, where a job is, and that it is to be run again, or not
-- at all. Counts stop at a bound, so that large tables cost nothing much. Ages are by the server's
-- clock.

-- name: PauseQueue :exec
INSERT INTO dblock_queue (queue, paused_at) VALUES (sqlc.arg(queue), TIMESTAMPADD(MICROSECOND, 0, +UTC_TIMESTAMP(6)))
ON DUPLICATE KEY UPDATE paused_at = COALESCE(paused_at, VALUES(paused_at));

-- name: ResumeQueue :exec
DELETE FROM dblock_queue WHERE queue = sqlc.arg(queue);

-- The next queue by name of which there is anything in a table that has an index which begins with
-- the queue; '': none.
-- name: NextQueue :one
SELECT CAST(COALESCE(MIN(n.queue), '') AS BINARY) AS queue
FROM (
    SELECT MIN(r.queue) AS queue FROM dblock_queue_ready r WHERE r.queue > sqlc.arg(after)
    UNION ALL SELECT MIN(b.queue) FROM dblock_queue_blocked b WHERE b.queue > sqlc.arg(after)
    UNION ALL SELECT MIN(d.queue) FROM dblock_queue_dead d WHERE d.queue > sqlc.arg(after)
    UNION ALL SELECT MIN(s.queue) FROM dblock_queue_scheduled s WHERE s.queue > sqlc.arg(after)
    UNION ALL SELECT MIN(p.queue) FROM dblock_queue p WHERE p.queue > sqlc.arg(after)
) n
LIMIT 1;

-- name: CountReady :one
SELECT COUNT(*) AS jobs FROM (SELECT r.job_id FROM dblock_queue_ready r FORCE INDEX (PRIMARY) WHERE r.queue = sqlc.arg(queue) LIMIT ?) x
LIMIT 1;

-- name: CountBlocked :one
SELECT COUNT(*) AS jobs FROM (SELECT b.job_id FROM dblock_queue_blocked b FORCE INDEX (PRIMARY) WHERE b.queue = sqlc.arg(queue) LIMIT ?) x
LIMIT 1;

-- name: CountDead :one
SELECT COUNT(*) AS jobs FROM (SELECT d.job_id FROM dblock_queue_dead d FORCE INDEX (dblock_queue_dead_when) WHERE d.queue = sqlc.arg(queue) LIMIT ?) x
LIMIT 1;

-- name: CountLater :one
SELECT COUNT(*) AS jobs
FROM (
    SELECT s.job_id FROM dblock_queue_scheduled s FORCE INDEX (dblock_queue_scheduled_queue)
    WHERE s.queue = sqlc.arg(queue) AND s.retry = sqlc.arg(retry) LIMIT ?
) x
LIMIT 1;

-- name: PausedFor :many
SELECT CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, p.paused_at, +UTC_TIMESTAMP(6)), 0) AS SIGNED) AS paused_us FROM dblock_queue p
WHERE p.queue = sqlc.arg(queue) AND p.paused_at IS NOT NULL
LIMIT 18446744073709551615;

-- Of the next jobs in order, those of priorities after one: how many there are, the last priority,
-- and how long the oldest has waited.
-- name: OldestReady :one
SELECT COUNT(*) AS jobs, CAST(COALESCE(MAX(x.priority), 0) AS SIGNED) AS last,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(x.ready_at), +UTC_TIMESTAMP(6)), 0) AS SIGNED) AS age_us
FROM (
    SELECT r.priority, r.ready_at FROM dblock_queue_ready r FORCE INDEX (PRIMARY)
    WHERE r.queue = sqlc.arg(queue) AND r.priority > CAST(sqlc.arg(after) AS SIGNED)
    ORDER BY r.queue, r.priority, r.ready_at, r.job_id
    LIMIT ?
) x
LIMIT 1;

-- name: CountClaimed :many
SELECT x.queue, COUNT(*) AS jobs
FROM (SELECT c.queue FROM dblock_queue_claim c FORCE INDEX (PRIMARY) LIMIT ?) x
GROUP BY x.queue
LIMIT 18446744073709551615;

-- name: ListReady :many
SELECT r.job_id, CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', r.ready_at), 0) AS SIGNED) AS at_us
FROM dblock_queue_ready r FORCE INDEX (PRIMARY)
WHERE r.queue = sqlc.arg(queue)
ORDER BY r.queue, r.priority, r.ready_at, r.job_id
LIMIT ?;

-- name: ListScheduled :many
SELECT s.job_id, CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', s.run_at), 0) AS SIGNED) AS at_us
FROM dblock_queue_scheduled s FORCE INDEX (dblock_queue_scheduled_queue)
WHERE s.queue = sqlc.arg(queue) AND s.retry = sqlc.arg(retry)
ORDER BY s.queue, s.retry, s.run_at, s.job_id
LIMIT ?;

-- name: ListBlocked :many
SELECT b.job_id FROM dblock_queue_blocked b FORCE INDEX (PRIMARY)
WHERE b.queue = sqlc.arg(queue)
ORDER BY b.queue, b.group_key, b.seq
LIMIT ?;

-- name: ListClaimed :many
SELECT x.job_id, CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', x.claimed_at), 0) AS SIGNED) AS at_us, COALESCE(m.label, '') AS worker
FROM (
    SELECT c.job_id, c.claimed_at, c.member_id FROM dblock_queue_claim c FORCE INDEX (PRIMARY) WHERE c.queue = sqlc.arg(queue) LIMIT ?
) x
LEFT JOIN dblock_member m ON m.member_id = x.member_id
LIMIT 18446744073709551615;

-- Those that died before others, the last ones first. A job whose time is the zero date is passed
-- over.
-- name: ListDead :many
SELECT d.job_id, d.queue, d.kind, d.priority, d.attempt, d.max_attempts,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', d.enqueued_at), 0) AS SIGNED) AS enqueued_us,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', d.died_at), 0) AS SIGNED) AS at_us, d.last_error
FROM dblock_queue_dead d FORCE INDEX (dblock_queue_dead_when)
WHERE d.queue = sqlc.arg(queue) AND d.died_at > CAST('1000-01-01' AS DATETIME(6))
  AND d.died_at <= TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(before_us) AS SIGNED), CAST('1970-01-01' AS DATETIME(6)))
  AND (d.died_at < TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(before_us) AS SIGNED), CAST('1970-01-01' AS DATETIME(6)))
       OR d.job_id < CAST(sqlc.arg(before_id) AS BINARY))
ORDER BY d.queue DESC, d.died_at DESC, d.job_id DESC
LIMIT ?;

-- name: ListHistory :many
SELECT h.job_id, h.queue, h.kind, h.priority, h.attempt, h.outcome,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', h.enqueued_at), 0) AS SIGNED) AS enqueued_us,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', h.finished_at), 0) AS SIGNED) AS at_us, h.reason
FROM (
    SELECT t.day, t.job_id, t.queue, t.kind, t.priority, t.attempt, t.outcome, t.enqueued_at, t.finished_at, t.reason
    FROM dblock_queue_history t FORCE INDEX (PRIMARY) ORDER BY t.day DESC, t.job_id DESC LIMIT 10000
) h
WHERE h.queue = CAST(sqlc.arg(queue) AS BINARY) AND h.outcome = CAST(sqlc.arg(outcome) AS SIGNED)
ORDER BY h.finished_at DESC, h.job_id DESC
LIMIT ?;

-- name: JobsOf :many
SELECT j.job_id, j.queue, j.kind, j.priority, j.attempt, j.max_attempts,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', j.enqueued_at), 0) AS SIGNED) AS enqueued_us, j.last_error
FROM dblock_queue_job j FORCE INDEX (PRIMARY) WHERE j.job_id IN (sqlc.slice(job_ids))
LIMIT 18446744073709551615;

-- name: JobRow :one
SELECT j.queue, j.kind, j.priority, j.attempt, j.max_attempts,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', j.enqueued_at), 0) AS SIGNED) AS enqueued_us, j.unique_key, j.group_key, j.last_error, j.payload
FROM dblock_queue_job j WHERE j.job_id = sqlc.arg(job_id)
LIMIT 1;

-- name: DeadRow :one
SELECT d.queue, d.kind, d.priority, d.attempt, d.max_attempts,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', d.enqueued_at), 0) AS SIGNED) AS enqueued_us,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', d.died_at), 0) AS SIGNED) AS at_us, d.unique_key, d.group_key, d.last_error, d.payload
FROM dblock_queue_dead d WHERE d.job_id = sqlc.arg(job_id)
LIMIT 1;

-- Where a job is, in one snapshot: it is in one place at a time. It became ready when it was
-- enqueued, or later. admitted: its group, if it has one, counts it.
-- name: FindJob :many
SELECT 1 AS state, CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', r.ready_at), 0) AS SIGNED) AS at_us, CAST(0 AS SIGNED) AS seq, CAST('' AS BINARY) AS member_id,
       CAST('' AS BINARY) AS claim_id, CAST(1 AS SIGNED) AS admitted
FROM dblock_queue_ready r FORCE INDEX (PRIMARY)
WHERE r.queue = sqlc.arg(queue) AND r.priority = sqlc.arg(priority)
  AND r.ready_at >= TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(since_us) AS SIGNED), CAST('1970-01-01' AS DATETIME(6))) AND r.job_id = sqlc.arg(job_id)
UNION ALL
SELECT IF(s.retry, 9, 2), CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', s.run_at), 0) AS SIGNED), 0, CAST('' AS BINARY), CAST('' AS BINARY),
       s.group_key IS NULL
FROM dblock_queue_scheduled s FORCE INDEX (PRIMARY)
WHERE s.run_at >= TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(since_us) AS SIGNED), CAST('1970-01-01' AS DATETIME(6))) AND s.job_id = sqlc.arg(job_id)
UNION ALL
SELECT 3, 0, b.seq, CAST('' AS BINARY), CAST('' AS BINARY), 0 FROM dblock_queue_blocked b FORCE INDEX (PRIMARY)
WHERE b.queue = sqlc.arg(queue) AND b.group_key = sqlc.arg(group_key) AND b.job_id = sqlc.arg(job_id)
UNION ALL
SELECT 4, CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', c.claimed_at), 0) AS SIGNED), 0, CAST(c.member_id AS BINARY), CAST(c.claim_id AS BINARY), 1
FROM dblock_queue_claim c FORCE INDEX (PRIMARY)
WHERE c.job_id = sqlc.arg(job_id)
LIMIT 18446744073709551615;

-- name: MemberLabel :one
SELECT m.label FROM dblock_member m WHERE m.member_id = sqlc.arg(member_id) LIMIT 1;

-- A job that waits is claimed by the caller that ends it, in the transaction that ends it. So all
-- that belongs to an end is done for it, too. A job that its group has not admitted takes no place
-- in it: the number of the group stays as it is.

-- name: TakeReadyJob :execrows
DELETE FROM dblock_queue_ready
WHERE queue = sqlc.arg(queue) AND priority = sqlc.arg(priority)
  AND ready_at = TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(at_us) AS SIGNED), CAST('1970-01-01' AS DATETIME(6))) AND job_id = sqlc.arg(job_id);

-- name: TakeScheduledJob :execrows
DELETE FROM dblock_queue_scheduled
WHERE run_at = TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(at_us) AS SIGNED), CAST('1970-01-01' AS DATETIME(6))) AND job_id = sqlc.arg(job_id)
  AND (group_key IS NULL) = CAST(sqlc.arg(admitted) AS SIGNED);

-- The row of its group is locked.
-- name: TakeBlockedJob :execrows
DELETE FROM dblock_queue_blocked
WHERE queue = sqlc.arg(queue) AND group_key = sqlc.arg(group_key) AND seq = sqlc.arg(seq) AND job_id = sqlc.arg(job_id);

-- name: ClaimOne :exec
INSERT INTO dblock_queue_claim (member_id, claim_id, job_id, queue, priority, ready_at)
VALUES (sqlc.arg(member_id), sqlc.arg(claim_id), sqlc.arg(job_id), sqlc.arg(queue), sqlc.arg(priority), TIMESTAMPADD(MICROSECOND, 0, +UTC_TIMESTAMP(6)));

-- Dead jobs again, with all their attempts, those that died last first. With a group_key they are
-- admitted as jobs whose time has come. It passes over those that are locked.
-- name: LockDead :many
SELECT d.job_id, d.queue, d.unique_key FROM dblock_queue_dead d FORCE INDEX (PRIMARY)
WHERE d.job_id IN (sqlc.slice(job_ids))
ORDER BY d.died_at DESC, d.job_id DESC
LIMIT 18446744073709551615
FOR UPDATE SKIP LOCKED;

-- How many of some jobs are dead, locked or not.
-- name: DeadAmong :one
SELECT COUNT(*) AS jobs FROM dblock_queue_dead d FORCE INDEX (PRIMARY)
WHERE d.job_id IN (sqlc.slice(job_ids))
LIMIT 1;

-- Whose a unique key is; it does not wait for a transaction that has just taken it.
-- name: UniqueHolder :many
SELECT u.job_id FROM dblock_queue_unique u WHERE u.queue = sqlc.arg(queue) AND u.unique_key = sqlc.arg(unique_key)
LIMIT 18446744073709551615
FOR UPDATE NOWAIT;

-- name: TakeUniqueKey :execrows
INSERT IGNORE INTO dblock_queue_unique (queue, unique_key, job_id) VALUES (sqlc.arg(queue), sqlc.arg(unique_key), sqlc.arg(job_id));

-- name: RetryJobs :exec
INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, enqueued_at, unique_key, group_key, group_most, last_error, payload)
SELECT d.job_id, d.queue, d.kind, d.priority, d.max_attempts, GREATEST(d.enqueued_at, CAST('1970-01-01' AS DATETIME(6))), d.unique_key, d.group_key, d.group_most, d.last_error, d.payload
FROM dblock_queue_dead d FORCE INDEX (PRIMARY) WHERE d.job_id IN (sqlc.slice(job_ids));

-- name: RetryReady :exec
INSERT INTO dblock_queue_ready (queue, priority, job_id)
SELECT d.queue, d.priority, d.job_id FROM dblock_queue_dead d FORCE INDEX (PRIMARY) WHERE d.group_key IS NULL AND d.job_id IN (sqlc.slice(job_ids));

-- name: RetryLater :exec
INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority, group_key)
SELECT TIMESTAMPADD(MICROSECOND, 0, +UTC_TIMESTAMP(6)), d.job_id, d.queue, d.priority, d.group_key
FROM dblock_queue_dead d FORCE INDEX (PRIMARY) WHERE d.group_key IS NOT NULL AND d.job_id IN (sqlc.slice(job_ids));

-- name: DeleteDead :execrows
DELETE FROM dblock_queue_dead WHERE job_id = sqlc.arg(job_id);

-- Dead jobs of a queue that died long ago. It passes over those that are locked.
-- name: OldDead :many
SELECT d.job_id FROM dblock_queue_dead d FORCE INDEX (dblock_queue_dead_when)
WHERE d.queue = sqlc.arg(queue) AND d.died_at <= TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(ago_us) AS SIGNED), +UTC_TIMESTAMP(6))
ORDER BY d.queue, d.died_at, d.job_id
LIMIT ?
FOR UPDATE SKIP LOCKED;

-- Whether there are any of these, locked or not.
-- name: AnyDead :one
SELECT COUNT(*) AS jobs
FROM (
    SELECT d.job_id FROM dblock_queue_dead d FORCE INDEX (dblock_queue_dead_when)
    WHERE d.queue = sqlc.arg(queue) AND d.died_at <= TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(ago_us) AS SIGNED), +UTC_TIMESTAMP(6))
    LIMIT 1
) x
LIMIT 1;

-- name: PurgeDead :execrows
DELETE d
FROM ( /*dblock:asks*/
    SELECT sqlc.arg(job_id) AS job_id
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_dead d FORCE INDEX (PRIMARY) ON d.job_id = ask.job_id;

-- A request to cancel a job of a claim. No row is affected if the claim does not have the job. It
-- waits for a reschedule or a discard of the job, and these wait for it, so that they see the
-- request: see CancelsAmong. A row that is there is changed, so that it counts.
-- name: RequestCancel :execrows
INSERT INTO dblock_queue_cancel (member_id, job_id)
SELECT c.member_id, c.job_id FROM dblock_queue_claim c FORCE INDEX (PRIMARY)
WHERE c.member_id = sqlc.arg(member_id) AND c.claim_id = sqlc.arg(claim_id) AND c.job_id = sqlc.arg(job_id)
LOCK IN SHARE MODE
ON DUPLICATE KEY UPDATE asked_at = TIMESTAMPADD(MICROSECOND, 1, dblock_queue_cancel.asked_at);

-- name: CancelsOf :many
SELECT c.job_id, (SELECT COUNT(*) FROM dblock_queue_job j WHERE j.job_id = c.job_id) AS stands
FROM dblock_queue_cancel c FORCE INDEX (PRIMARY)
WHERE c.member_id = sqlc.arg(member_id) AND c.job_id > CAST(sqlc.arg(after) AS BINARY)
ORDER BY c.member_id, c.job_id
LIMIT 1000;

-- name: DropCancels :execrows
DELETE c
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(member_id) AS BINARY) AS member_id, CAST(sqlc.arg(job_id) AS BINARY) AS job_id
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_cancel c FORCE INDEX (PRIMARY) ON c.member_id = ask.member_id AND c.job_id = ask.job_id;

-- Those whose jobs have ended, and whose worker has not dropped them.
-- name: OldCancels :many
SELECT c.member_id, c.job_id FROM dblock_queue_cancel c
WHERE c.asked_at < TIMESTAMPADD(HOUR, -1, +UTC_TIMESTAMP(6)) AND (SELECT COUNT(*) FROM dblock_queue_job j WHERE j.job_id = c.job_id) = 0
LIMIT 1000;
