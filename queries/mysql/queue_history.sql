-- Where history is kept it is written in the transaction that ends the job: before its row is gone,
-- and behind the same fence. A job that ends twice a day, as it was given up and tried again, is
-- kept as it ended last. A zero date, which a strict session refuses, is 1970.

-- name: KeepFinished :exec
INSERT INTO dblock_queue_history (day, job_id, queue, kind, priority, attempt, outcome, enqueued_at, payload)
SELECT DATE(+UTC_TIMESTAMP(6)), j.job_id, j.queue, j.kind, j.priority, j.attempt + 1, 1, GREATEST(j.enqueued_at, CAST('1970-01-01' AS DATETIME(6))), j.payload
FROM dblock_queue_job j FORCE INDEX (PRIMARY)
WHERE j.job_id IN (sqlc.slice(job_ids))
ON DUPLICATE KEY UPDATE attempt = VALUES(attempt), outcome = VALUES(outcome), finished_at = VALUES(finished_at), reason = NULL;

-- name: KeepCancelled :exec
INSERT INTO dblock_queue_history (day, job_id, queue, kind, priority, attempt, outcome, enqueued_at, payload, reason)
SELECT DATE(+UTC_TIMESTAMP(6)), j.job_id, j.queue, j.kind, j.priority, ask.attempt, 2, GREATEST(j.enqueued_at, CAST('1970-01-01' AS DATETIME(6))), j.payload, ask.reason
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(job_id) AS BINARY) AS job_id, CAST(sqlc.arg(attempt) AS SIGNED) AS attempt, CAST(sqlc.arg(reason) AS BINARY) AS reason
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_job j FORCE INDEX (PRIMARY) ON j.job_id = ask.job_id
ON DUPLICATE KEY UPDATE attempt = VALUES(attempt), outcome = VALUES(outcome), finished_at = VALUES(finished_at), reason = VALUES(reason);

-- Those that were given up are there once they are among the dead.
-- name: KeepDead :exec
INSERT INTO dblock_queue_history (day, job_id, queue, kind, priority, attempt, outcome, enqueued_at, finished_at, payload, reason)
SELECT DATE(d.died_at), d.job_id, d.queue, d.kind, d.priority, d.attempt, 3, GREATEST(d.enqueued_at, CAST('1970-01-01' AS DATETIME(6))), d.died_at, d.payload, d.last_error
FROM dblock_queue_dead d FORCE INDEX (PRIMARY)
WHERE d.job_id IN (sqlc.slice(job_ids))
ON DUPLICATE KEY UPDATE attempt = VALUES(attempt), outcome = VALUES(outcome), finished_at = VALUES(finished_at), reason = VALUES(reason);

-- name: PruneHistory :execrows
DELETE FROM dblock_queue_history
WHERE day < DATE(TIMESTAMPADD(DAY, CAST(sqlc.arg(days_ago) AS SIGNED), +UTC_TIMESTAMP(6)))
ORDER BY day, job_id
LIMIT ?;

-- Which days there are, at most.
-- name: HistorySpan :one
SELECT CAST(COALESCE(DATE_FORMAT(MIN(h.day), '%Y-%m-%d'), '') AS BINARY) AS first, CAST(COALESCE(DATE_FORMAT(MAX(h.day), '%Y-%m-%d'), '') AS BINARY) AS last
FROM dblock_queue_history h
LIMIT 1;

-- name: HistoryRow :many
SELECT h.queue, h.kind, h.priority, h.attempt, h.outcome,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', h.enqueued_at), 0) AS SIGNED) AS enqueued_us,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', h.finished_at), 0) AS SIGNED) AS at_us, h.payload, h.reason
FROM dblock_queue_history h FORCE INDEX (PRIMARY)
WHERE h.day = CAST(CAST(sqlc.arg(day) AS CHAR) AS DATE) AND h.job_id = sqlc.arg(job_id)
LIMIT 18446744073709551615;
