-- Where history is kept it is written in the transaction that ends the job: before its row is gone,
-- and behind the same fence. A job that ends twice a day, as it was given up and tried again, is
-- kept as it ended last.

-- name: KeepFinished :exec
WITH fence AS MATERIALIZED (
    SELECT c.claim_id FROM dblock_queue_claim c
    WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
    ORDER BY c.claim_id
    FOR KEY SHARE
)
INSERT INTO dblock_queue_history (day, job_id, queue, kind, priority, attempt, outcome, enqueued_at, payload, reason)
SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date, j.job_id, j.queue, j.kind, j.priority, a.attempt, a.outcome, j.enqueued_at, j.payload, NULLIF(a.reason, '')
FROM (SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, pg_catalog.unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id,
             pg_catalog.unnest(sqlc.arg(attempts)::smallint[]) AS attempt, pg_catalog.unnest(sqlc.arg(outcomes)::smallint[]) AS outcome, pg_catalog.unnest(sqlc.arg(reasons)::text[]) AS reason) a
CROSS JOIN LATERAL (
    SELECT x.job_id, x.queue, x.kind, x.priority, x.enqueued_at, x.payload FROM dblock_queue_job x WHERE x.job_id = a.job_id LIMIT 1
) j
WHERE (a.claim_id IN (SELECT f.claim_id FROM fence f)) IS TRUE
ON CONFLICT (day, job_id) DO UPDATE SET attempt = EXCLUDED.attempt, outcome = EXCLUDED.outcome, finished_at = EXCLUDED.finished_at,
    reason = EXCLUDED.reason;

-- Those that were given up are there once they are among the dead.
-- name: KeepDead :exec
INSERT INTO dblock_queue_history (day, job_id, queue, kind, priority, attempt, outcome, enqueued_at, finished_at, payload, reason)
SELECT (d.died_at AT TIME ZONE 'UTC')::date, d.job_id, d.queue, d.kind, d.priority, d.attempt, 3, d.enqueued_at, d.died_at, d.payload, d.last_error
FROM dblock_queue_dead d WHERE d.job_id = ANY (sqlc.arg(job_ids)::uuid[])
ORDER BY d.job_id -- along the key, and not along the index of the times
ON CONFLICT (day, job_id) DO UPDATE SET attempt = EXCLUDED.attempt, outcome = EXCLUDED.outcome, finished_at = EXCLUDED.finished_at,
    reason = EXCLUDED.reason;

-- name: PruneHistory :execrows
WITH head AS MATERIALIZED (
    SELECT h.ctid::tid AS place FROM dblock_queue_history h
    WHERE h.day < (statement_timestamp() AT TIME ZONE 'UTC')::date - sqlc.arg(days)::int
    ORDER BY h.day, h.job_id LIMIT sqlc.arg(most) FOR UPDATE SKIP LOCKED
)
DELETE FROM dblock_queue_history d WHERE d.ctid = ANY (ARRAY(SELECT h.place FROM head h));

-- Which days there are, at most.
-- name: HistorySpan :one
SELECT COALESCE(to_char(min(h.day), 'YYYY-MM-DD'), '')::text AS first, COALESCE(to_char(max(h.day), 'YYYY-MM-DD'), '')::text AS last
FROM dblock_queue_history h;

-- name: HistoryRow :one
SELECT h.queue, h.kind, h.priority, h.attempt, h.outcome, CASE WHEN pg_catalog.isfinite(h.enqueued_at) THEN h.enqueued_at ELSE 'epoch'::timestamptz END AS enqueued_at, CASE WHEN pg_catalog.isfinite(h.finished_at) THEN h.finished_at ELSE 'epoch'::timestamptz END AS at,
       h.payload, COALESCE(h.reason, '')::text AS reason
FROM dblock_queue_history h
WHERE h.day = ANY (sqlc.arg(days)::text[]::date[]) AND h.job_id = sqlc.arg(job_id)
ORDER BY h.day DESC LIMIT 1;
