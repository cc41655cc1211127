-- Jobs without a group whose time has come, since so long at most.
-- name: DueJobs :many
SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', s.run_at) AS SIGNED) AS run_us, s.job_id, s.queue, s.priority
FROM dblock_queue_scheduled s FORCE INDEX (PRIMARY)
WHERE s.run_at <= +UTC_TIMESTAMP(6) AND s.group_key IS NULL
  AND s.run_at > TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(ago_us) AS SIGNED), +UTC_TIMESTAMP(6))
ORDER BY s.run_at, s.job_id
LIMIT ?
FOR UPDATE SKIP LOCKED;

-- The same jobs: those of some queues, or of all others. It locks none.
-- name: DueUnlocked :many
SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', s.run_at) AS SIGNED) AS run_us, s.job_id, s.queue
FROM dblock_queue_scheduled s FORCE INDEX (PRIMARY)
WHERE s.run_at <= +UTC_TIMESTAMP(6) AND s.group_key IS NULL
  AND s.run_at > TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(ago_us) AS SIGNED), +UTC_TIMESTAMP(6))
  AND CAST(sqlc.arg(of_these) AS SIGNED) = (s.queue IN (sqlc.slice(queues)))
ORDER BY s.run_at, s.job_id
LIMIT ?;

-- A later row of a job that the server refuses to make ready. The caller has locked the old row.
-- name: PostponeJob :exec
INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority, group_key, retry)
SELECT TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(after_us) AS SIGNED), +UTC_TIMESTAMP(6)), s.job_id, s.queue, s.priority, s.group_key, s.retry
FROM dblock_queue_scheduled s FORCE INDEX (PRIMARY)
WHERE s.run_at = TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(run_us) AS SIGNED), CAST('1970-01-01' AS DATETIME(6)))
  AND s.job_id = sqlc.arg(job_id);

-- The most urgent jobs without a group of those whose time has come. It reads all of them, and
-- locks none.
-- name: UrgentJobs :many
SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', s.run_at) AS SIGNED) AS run_us, s.job_id
FROM dblock_queue_scheduled s FORCE INDEX (PRIMARY)
WHERE s.run_at <= +UTC_TIMESTAMP(6) AND s.group_key IS NULL
ORDER BY s.priority, s.run_at, s.job_id
LIMIT ?;

-- The queues that have jobs whose time is to come, or has come.
-- name: ScheduledQueues :many
SELECT DISTINCT s.queue FROM dblock_queue_scheduled s FORCE INDEX (dblock_queue_scheduled_queue) LIMIT 18446744073709551615;

-- Jobs of a queue without a group whose time has come. It locks none.
-- name: DueOfQueue :many
SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', s.run_at) AS SIGNED) AS run_us, s.job_id
FROM dblock_queue_scheduled s FORCE INDEX (dblock_queue_scheduled_queue)
WHERE s.queue = sqlc.arg(queue) AND s.retry = sqlc.arg(retry) AND s.run_at <= +UTC_TIMESTAMP(6) AND s.group_key IS NULL
ORDER BY s.run_at, s.job_id
LIMIT ?;

-- Those of them that are still there, and that no other transaction has locked.
-- name: LockScheduled :many
SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', s.run_at) AS SIGNED) AS run_us, s.job_id, s.queue, s.priority
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(run_us) AS SIGNED) AS run_us, CAST(sqlc.arg(job_id) AS BINARY) AS job_id
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_scheduled s FORCE INDEX (PRIMARY)
ON s.run_at = TIMESTAMPADD(MICROSECOND, ask.run_us, CAST('1970-01-01' AS DATETIME(6))) AND s.job_id = ask.job_id
LIMIT 18446744073709551615
FOR UPDATE SKIP LOCKED;

-- The first jobs of groups whose time has come, behind one of them, and their groups.
-- name: DueGrouped :many
SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', s.run_at) AS SIGNED) AS run_us, s.job_id, s.queue, s.group_key
FROM dblock_queue_scheduled s FORCE INDEX (PRIMARY)
WHERE s.run_at <= +UTC_TIMESTAMP(6) AND s.group_key IS NOT NULL
  AND (s.run_at > TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(after_us) AS SIGNED), CAST('1970-01-01' AS DATETIME(6)))
       OR s.run_at = TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(after_us) AS SIGNED), CAST('1970-01-01' AS DATETIME(6)))
          AND s.job_id > sqlc.arg(after_job))
ORDER BY s.run_at, s.job_id
LIMIT ?
FOR UPDATE SKIP LOCKED;

-- The groups of the first jobs whose time has come, behind one of them. If there are as many as
-- were asked for, the last row is the last job.
-- name: DueGroups :many
SELECT DISTINCT h.queue, h.group_key, CAST(0 AS SIGNED) AS run_us, h.queue AS job_id
FROM (
    SELECT s.queue, s.group_key FROM dblock_queue_scheduled s FORCE INDEX (PRIMARY)
    WHERE s.run_at <= +UTC_TIMESTAMP(6)
      AND (s.run_at > TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(after_us) AS SIGNED), CAST('1970-01-01' AS DATETIME(6)))
           OR s.run_at = TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(after_us) AS SIGNED), CAST('1970-01-01' AS DATETIME(6)))
              AND s.job_id > sqlc.arg(after_job))
    ORDER BY s.run_at, s.job_id
    LIMIT ?
) h
WHERE h.group_key IS NOT NULL
UNION ALL
(SELECT s.queue, NULL, CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', s.run_at) AS SIGNED), s.job_id
 FROM dblock_queue_scheduled s FORCE INDEX (PRIMARY)
 WHERE s.run_at <= +UTC_TIMESTAMP(6)
   AND (s.run_at > TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(after_us) AS SIGNED), CAST('1970-01-01' AS DATETIME(6)))
        OR s.run_at = TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(after_us) AS SIGNED), CAST('1970-01-01' AS DATETIME(6)))
           AND s.job_id > sqlc.arg(after_job))
 ORDER BY s.run_at, s.job_id
 LIMIT 1 OFFSET ?)
LIMIT 18446744073709551615;

-- They are deleted by their whole key: a range would wait for what others have locked.
-- name: Unschedule :execrows
DELETE s
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(run_us) AS SIGNED) AS run_us, CAST(sqlc.arg(job_id) AS BINARY) AS job_id
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_scheduled s FORCE INDEX (PRIMARY)
ON s.run_at = TIMESTAMPADD(MICROSECOND, ask.run_us, CAST('1970-01-01' AS DATETIME(6))) AND s.job_id = ask.job_id;
