-- Jobs and where they stand in one statement, so that it fits into anybody's transaction in one round trip. What is ready gets
-- its place in line by the server's clock as it is inserted, in the order of the arrays.
-- name: EnqueueJobs :exec
WITH ask AS (
    SELECT unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, unnest(sqlc.arg(queues)::text[]) AS queue, unnest(sqlc.arg(kinds)::text[]) AS kind,
           unnest(sqlc.arg(priorities)::smallint[]) AS priority, unnest(sqlc.arg(max_attempts)::smallint[]) AS max_attempts,
           unnest(sqlc.arg(delays_us)::bigint[]) AS delay_us, unnest(sqlc.arg(payloads)::bytea[]) AS payload
), job AS (
    INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, payload)
    SELECT a.job_id, a.queue, a.kind, a.priority, a.max_attempts, a.payload FROM ask a
), later AS (
    INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority)
    SELECT clock_timestamp() + a.delay_us * interval '1 microsecond', a.job_id, a.queue, a.priority FROM ask a WHERE a.delay_us > 0
)
INSERT INTO dblock_queue_ready (queue, priority, job_id)
SELECT a.queue, a.priority, a.job_id FROM ask a WHERE a.delay_us = 0;

-- What jobs that are copied are stamped with: COPY takes no expressions.
-- name: TimeToEnqueue :one
SELECT clock_timestamp()::timestamptz AS now;
