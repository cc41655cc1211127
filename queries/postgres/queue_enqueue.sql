-- Inserts jobs and their positions in the queue. It is one statement, so that a host's transaction
-- takes one round trip. What is ready gets its place in the queue by the server's clock as it is
-- inserted, in the order of the arrays. Listeners are notified of it when the transaction commits,
-- unless the channel is empty. A trigger or an index of the host's may wait for a row that another
-- transaction has locked: for lock_timeout, or if that is empty, as long as the session says.
-- name: EnqueueJobs :exec
WITH bound AS MATERIALIZED (
    SELECT pg_catalog.set_config('lock_timeout', COALESCE(NULLIF(sqlc.arg(lock_timeout)::text, ''), pg_catalog.current_setting('lock_timeout')), true) AS lock_timeout
), ask AS (
    SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, pg_catalog.unnest(sqlc.arg(queues)::text[]) AS queue, pg_catalog.unnest(sqlc.arg(kinds)::text[]) AS kind,
           pg_catalog.unnest(sqlc.arg(priorities)::smallint[]) AS priority, pg_catalog.unnest(sqlc.arg(max_attempts)::smallint[]) AS max_attempts,
           pg_catalog.unnest(sqlc.arg(delays_us)::bigint[]) AS delay_us, pg_catalog.unnest(sqlc.arg(payloads)::bytea[]) AS payload
    FROM bound WHERE bound.lock_timeout IS NOT NULL
), job AS (
    INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, payload)
    SELECT a.job_id, a.queue, a.kind, a.priority, a.max_attempts, a.payload FROM ask a
), later AS (
    INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority)
    SELECT clock_timestamp() + a.delay_us::float8 * interval '1 microsecond', a.job_id, a.queue, a.priority FROM ask a WHERE a.delay_us > 0
), ready AS (
    INSERT INTO dblock_queue_ready (queue, priority, job_id)
    SELECT a.queue, a.priority, a.job_id FROM ask a WHERE a.delay_us = 0
)
SELECT pg_catalog.count(pg_catalog.pg_notify(sqlc.arg(channel), 'jobs :' || pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(told.queue, 'UTF8')), 'hex')))
FROM (SELECT DISTINCT a.queue FROM ask a WHERE a.delay_us = 0 AND sqlc.arg(channel)::text <> '') told;

-- The same for jobs without a delay: it needs no lock of the table of the scheduled ones.
-- name: EnqueueReadyJobs :exec
WITH bound AS MATERIALIZED (
    SELECT pg_catalog.set_config('lock_timeout', COALESCE(NULLIF(sqlc.arg(lock_timeout)::text, ''), pg_catalog.current_setting('lock_timeout')), true) AS lock_timeout
), ask AS (
    SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, pg_catalog.unnest(sqlc.arg(queues)::text[]) AS queue, pg_catalog.unnest(sqlc.arg(kinds)::text[]) AS kind,
           pg_catalog.unnest(sqlc.arg(priorities)::smallint[]) AS priority, pg_catalog.unnest(sqlc.arg(max_attempts)::smallint[]) AS max_attempts,
           pg_catalog.unnest(sqlc.arg(payloads)::bytea[]) AS payload
    FROM bound WHERE bound.lock_timeout IS NOT NULL
), job AS (
    INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, payload)
    SELECT a.job_id, a.queue, a.kind, a.priority, a.max_attempts, a.payload FROM ask a
), ready AS (
    INSERT INTO dblock_queue_ready (queue, priority, job_id)
    SELECT a.queue, a.priority, a.job_id FROM ask a
)
SELECT pg_catalog.count(pg_catalog.pg_notify(sqlc.arg(channel), 'jobs :' || pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(told.queue, 'UTF8')), 'hex')))
FROM (SELECT DISTINCT a.queue FROM ask a WHERE sqlc.arg(channel)::text <> '') told;

-- name: NotifyQueues :exec
SELECT pg_catalog.pg_notify(sqlc.arg(channel), news.payload) FROM (SELECT pg_catalog.unnest(sqlc.arg(payloads)::text[]) AS payload) news;

-- A table's number: however the table is found it is the same, and no other schema's has it.
-- name: TableNumber :one
SELECT COALESCE(pg_catalog.to_regclass(sqlc.arg(table_name)::text)::oid, 0)::bigint AS number;

-- What jobs that are copied are stamped with: COPY takes no expressions.
-- name: TimeToEnqueue :one
SELECT clock_timestamp()::timestamptz AS now;
