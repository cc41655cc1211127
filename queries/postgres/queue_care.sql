-- Jobs whose time has come, since so long at most, are ready, from now on, but for those that their groups have to admit: see
-- TakeDueGrouped. statement_timestamp() and not clock_timestamp(), which no index is searched by.
-- name: PromoteJobs :one
WITH head AS MATERIALIZED (
    SELECT s.ctid::tid AS place FROM dblock_queue_scheduled s
    WHERE s.run_at <= statement_timestamp() AND s.group_key IS NULL
      AND s.run_at > statement_timestamp() - sqlc.arg(since_us)::float8 * interval '1 microsecond'
    ORDER BY s.run_at, s.job_id LIMIT sqlc.arg(most) FOR UPDATE SKIP LOCKED
), due AS (
    DELETE FROM dblock_queue_scheduled d
    WHERE d.ctid = ANY (ARRAY(SELECT h.place FROM head h))
    RETURNING d.queue, d.priority, d.job_id
), ready AS (
    INSERT INTO dblock_queue_ready (queue, priority, job_id) SELECT d.queue, d.priority, d.job_id FROM due d
)
SELECT count(*) FROM due;

-- Jobs of claims that were taken from the dead: ready again, with one attempt more, or given up after the last one. It is a statement
-- of its own, after that which took the claims: only then it sees what a zombie had finished before.
-- name: RescueJobs :one
WITH left_over AS MATERIALIZED (
    SELECT j.ctid::tid AS place, j.job_id, j.attempt + 1 < j.max_attempts AS again FROM dblock_queue_job j
    WHERE j.job_id = ANY (sqlc.arg(job_ids)::uuid[])
    ORDER BY j.job_id FOR NO KEY UPDATE
), job AS (
    UPDATE dblock_queue_job u SET attempt = u.attempt + 1, last_error = sqlc.arg(failure)::text
    FROM left_over l WHERE u.ctid = l.place AND l.again
    RETURNING u.job_id, u.queue, u.priority
), ready AS (
    INSERT INTO dblock_queue_ready (queue, priority, job_id) SELECT b.queue, b.priority, b.job_id FROM job b
), dead AS (
    DELETE FROM dblock_queue_job x WHERE x.job_id = ANY (ARRAY(SELECT l.job_id FROM left_over l WHERE NOT l.again))
    RETURNING x.job_id, x.queue, x.kind, x.priority, x.attempt, x.max_attempts, x.enqueued_at, x.unique_key, x.group_key, x.group_most, x.payload
), buried AS (
    INSERT INTO dblock_queue_dead (job_id, queue, kind, priority, attempt, max_attempts, enqueued_at, unique_key, group_key, group_most, last_error, payload)
    SELECT d.job_id, d.queue, d.kind, d.priority, d.attempt + 1, d.max_attempts, d.enqueued_at, d.unique_key, d.group_key, d.group_most, sqlc.arg(failure)::text, d.payload
    FROM dead d
)
SELECT (SELECT count(*) FROM job) AS again, (SELECT count(*) FROM dead) AS dead;

-- Jobs that nobody has begun are ready again.
-- name: ReadyAgain :execrows
INSERT INTO dblock_queue_ready (queue, priority, job_id)
SELECT j.queue, j.priority, j.job_id FROM dblock_queue_job j WHERE j.job_id = ANY (sqlc.arg(job_ids)::uuid[]);
