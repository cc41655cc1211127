-- Jobs whose time has come, since so long at most, are ready, from now on, but for those that their
-- groups have to admit: see TakeDueGrouped. statement_timestamp() and not clock_timestamp(), which
-- no index is searched by.
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

-- The first jobs without a group whose time has come: those of some queues, or of all others. It
-- locks none.
-- name: DueJobs :many
SELECT s.run_at, s.job_id, s.queue FROM dblock_queue_scheduled s
WHERE s.run_at <= statement_timestamp() AND s.group_key IS NULL
  AND s.run_at > statement_timestamp() - sqlc.arg(since_us)::float8 * interval '1 microsecond'
  AND (s.queue = ANY (sqlc.arg(queues)::text[])) = sqlc.arg(of_these)::bool
ORDER BY s.run_at, s.job_id LIMIT sqlc.arg(most);

-- Those of some jobs are ready that are still there, and that no other transaction has locked.
-- name: PromoteThese :one
WITH head AS MATERIALIZED (
    SELECT h.place
    FROM (SELECT pg_catalog.unnest(sqlc.arg(run_ats)::timestamptz[]) AS run_at, pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id) a
    CROSS JOIN LATERAL (
        SELECT s.ctid::tid AS place FROM dblock_queue_scheduled s
        WHERE s.run_at = a.run_at AND s.job_id = a.job_id AND s.group_key IS NULL
        LIMIT 1 FOR UPDATE SKIP LOCKED
    ) h
), due AS (
    DELETE FROM dblock_queue_scheduled d
    WHERE d.ctid = ANY (ARRAY(SELECT h.place FROM head h))
    RETURNING d.queue, d.priority, d.job_id
), ready AS (
    INSERT INTO dblock_queue_ready (queue, priority, job_id) SELECT d.queue, d.priority, d.job_id FROM due d
)
SELECT count(*) FROM due;

-- A job that the server refuses to make ready is due again after a while.
-- name: PostponeJob :exec
UPDATE dblock_queue_scheduled s SET run_at = clock_timestamp() + sqlc.arg(after_us)::bigint::float8 * interval '1 microsecond'
WHERE s.run_at = sqlc.arg(run_at) AND s.job_id = sqlc.arg(job_id);

-- Some jobs of each queue whose time has come are ready: of some queues, if there are very many.
-- name: PromoteOfEach :one
WITH RECURSIVE queues AS (
    (SELECT f.queue FROM dblock_queue_scheduled f ORDER BY f.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT n.queue FROM dblock_queue_scheduled n WHERE n.queue > q.queue ORDER BY n.queue LIMIT 1)
    FROM queues q WHERE q.queue IS NOT NULL
), shuffled AS MATERIALIZED (
    SELECT q.queue, r.retry FROM queues q, (SELECT false AS retry UNION ALL SELECT true AS retry) r
    WHERE q.queue IS NOT NULL ORDER BY pg_catalog.random()
), head AS MATERIALIZED (
    SELECT h.place FROM shuffled o, LATERAL (
        SELECT s.ctid::tid AS place FROM dblock_queue_scheduled s
        WHERE s.queue = o.queue AND s.retry = o.retry AND s.run_at <= statement_timestamp() AND s.group_key IS NULL
        ORDER BY s.run_at, s.job_id LIMIT sqlc.arg(most_of_each) FOR UPDATE SKIP LOCKED
    ) h
    LIMIT sqlc.arg(most)
), due AS (
    DELETE FROM dblock_queue_scheduled d
    WHERE d.ctid = ANY (ARRAY(SELECT h.place FROM head h))
    RETURNING d.queue, d.priority, d.job_id
), ready AS (
    INSERT INTO dblock_queue_ready (queue, priority, job_id) SELECT d.queue, d.priority, d.job_id FROM due d
)
SELECT count(*) FROM due;

-- The most urgent jobs of those whose time has come are ready: it reads all of them, a million at
-- most, and locks those alone.
-- name: PromoteUrgent :one
WITH urgent AS MATERIALIZED (
    SELECT u.place FROM (
        SELECT s.ctid::tid AS place, s.priority, s.run_at, s.job_id FROM dblock_queue_scheduled s
        WHERE s.run_at <= statement_timestamp() AND s.group_key IS NULL
        ORDER BY s.run_at, s.job_id LIMIT 1000000
    ) u
    ORDER BY u.priority, u.run_at, u.job_id LIMIT sqlc.arg(most)
), head AS MATERIALIZED (
    SELECT s.ctid::tid AS place FROM dblock_queue_scheduled s
    WHERE s.ctid = ANY (ARRAY(SELECT u.place FROM urgent u)) FOR UPDATE SKIP LOCKED
), due AS (
    DELETE FROM dblock_queue_scheduled d
    WHERE d.ctid = ANY (ARRAY(SELECT h.place FROM head h))
    RETURNING d.queue, d.priority, d.job_id
), ready AS (
    INSERT INTO dblock_queue_ready (queue, priority, job_id) SELECT d.queue, d.priority, d.job_id FROM due d
)
SELECT count(*) FROM due;
