-- Each of these proves that the claims are still this member's, and keeps them so till its
-- transaction ends: a claim that was taken away has no row. It returns how many jobs it found, so
-- that fewer than were sent are lost.
--
-- The plan of each statement is linear in the jobs that it carries, also if it was made when the
-- tables were empty. The sessions neither hash nor merge joins, and a join of an UPDATE or a DELETE
-- may read its whole table. So rows are found by LATERAL (… LIMIT 1), which reads the key, and then
-- by their ctid, if they are locked, or by "= ANY (ARRAY(SELECT …))". "(x IN (SELECT …)) IS TRUE"
-- is no join: the server hashes the rows of the SELECT once.

-- name: FinishJobs :one
WITH fence AS MATERIALIZED (
    SELECT c.claim_id FROM dblock_queue_claim c
    WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
    ORDER BY c.claim_id
    FOR KEY SHARE
), own AS MATERIALIZED (
    SELECT a.job_id
    FROM (SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, pg_catalog.unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id) a
    WHERE (a.claim_id IN (SELECT f.claim_id FROM fence f)) IS TRUE
), done AS (
    DELETE FROM dblock_queue_job j WHERE j.job_id = ANY (ARRAY(SELECT o.job_id FROM own o))
    RETURNING j.job_id
)
SELECT count(*) FROM done;

-- Records that the next attempts of jobs begin. It returns the jobs whose claims are still the
-- member's, and which of them are recorded: the rows of the others are locked. It does not wait for
-- these.
-- name: BeginJobs :many
WITH fence AS MATERIALIZED (
    SELECT c.claim_id FROM dblock_queue_claim c
    WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
    ORDER BY c.claim_id
    FOR KEY SHARE SKIP LOCKED
), own AS MATERIALIZED (
    SELECT c.claim_id FROM dblock_queue_claim c
    WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
), ask AS MATERIALIZED (
    SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, pg_catalog.unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id
), body AS MATERIALIZED (
    SELECT j.place
    FROM ask a
    CROSS JOIN LATERAL (SELECT x.ctid::tid AS place FROM dblock_queue_job x WHERE x.job_id = a.job_id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) j
    WHERE (a.claim_id IN (SELECT f.claim_id FROM fence f)) IS TRUE
), begun AS (
    UPDATE dblock_queue_job j SET begun = LEAST(j.attempt, 32766::smallint) + 1::smallint
    WHERE j.ctid = ANY (ARRAY(SELECT b.place FROM body b))
    RETURNING j.job_id
)
SELECT a.job_id::uuid AS job_id, ((a.job_id IN (SELECT b.job_id FROM begun b)) IS TRUE)::boolean AS begun
FROM ask a
CROSS JOIN LATERAL (SELECT x.job_id FROM dblock_queue_job x WHERE x.job_id = a.job_id LIMIT 1) j
WHERE (a.claim_id IN (SELECT o.claim_id FROM own o)) IS TRUE;

-- Jobs that are to be rescheduled or discarded, and that others want cancelled. Their claims are
-- locked by a statement of its own before: only then it sees each request for a job of these
-- claims.
-- name: LockClaims :exec
SELECT c.claim_id FROM dblock_queue_claim c
WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
ORDER BY c.claim_id
FOR NO KEY UPDATE;

-- name: CancelsHeld :many
WITH held AS MATERIALIZED (
    SELECT c.claim_id, pg_catalog.unnest(c.job_ids) AS job_id FROM dblock_queue_claim c
    WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
)
SELECT x.job_id
FROM (SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, pg_catalog.unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id) a
CROSS JOIN LATERAL (
    SELECT y.job_id FROM dblock_queue_cancel y WHERE y.member_id = sqlc.arg(member_id) AND y.job_id = a.job_id LIMIT 1
) x
WHERE ((a.claim_id, a.job_id) IN (SELECT h.claim_id, h.job_id FROM held h)) IS TRUE;

-- Locks the rows of jobs that are to be rescheduled, by a statement of its own. RescheduleJobs
-- writes rows by their places (ctid): it would miss a row that changed while it waited for its
-- lock.
-- name: LockJobs :exec
WITH held AS MATERIALIZED (
    SELECT c.claim_id, pg_catalog.unnest(c.job_ids) AS job_id FROM dblock_queue_claim c
    WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
)
SELECT j.job_id
FROM (SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, pg_catalog.unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id) a
CROSS JOIN LATERAL (SELECT x.job_id FROM dblock_queue_job x WHERE x.job_id = a.job_id LIMIT 1 FOR NO KEY UPDATE) j
WHERE ((a.claim_id, a.job_id) IN (SELECT h.claim_id, h.job_id FROM held h)) IS TRUE;

-- Gives jobs up for now: they are for later, or ready again where the delay is 0, since the time
-- that is given, or from now on. The claim no longer has them, so that to send it again changes
-- nothing. records: their beginnings are recorded from now on, and none has begun that has not
-- ended.
-- name: RescheduleJobs :one
WITH fence AS MATERIALIZED (
    SELECT c.claim_id, c.job_ids FROM dblock_queue_claim c
    WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
    ORDER BY c.claim_id
    FOR NO KEY UPDATE
), rest AS (
    UPDATE dblock_queue_claim k
    SET job_ids = ARRAY(
        SELECT x.job_id FROM pg_catalog.unnest(k.job_ids) AS x(job_id)
        WHERE (x.job_id IN (SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]))) IS NOT TRUE)
    WHERE k.claim_id = ANY (ARRAY(SELECT f.claim_id FROM fence f))
), held AS MATERIALIZED (
    SELECT f.claim_id, pg_catalog.unnest(f.job_ids) AS job_id FROM fence f
), ask AS MATERIALIZED (
    SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, pg_catalog.unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id,
           pg_catalog.unnest(sqlc.arg(attempts)::smallint[]) AS attempt, pg_catalog.unnest(sqlc.arg(errors)::text[]) AS failure,
           pg_catalog.unnest(sqlc.arg(delays_us)::bigint[]) AS delay_us, pg_catalog.unnest(sqlc.arg(ready_ats)::timestamptz[]) AS ready_at,
           pg_catalog.unnest(sqlc.arg(records)::boolean[]) AS records
), body AS MATERIALIZED (
    SELECT j.place, a.attempt, a.failure, a.delay_us, a.ready_at, a.records
    FROM ask a
    CROSS JOIN LATERAL (SELECT x.ctid::tid AS place FROM dblock_queue_job x WHERE x.job_id = a.job_id LIMIT 1 FOR NO KEY UPDATE) j
    WHERE ((a.claim_id, a.job_id) IN (SELECT h.claim_id, h.job_id FROM held h)) IS TRUE
), job AS (
    UPDATE dblock_queue_job j SET attempt = b.attempt, last_error = COALESCE(NULLIF(b.failure, ''), j.last_error),
        begun = CASE WHEN b.records THEN b.attempt ELSE j.begun END
    FROM body b WHERE j.ctid = b.place
    RETURNING j.job_id, j.queue, j.priority, b.delay_us, b.ready_at, b.failure <> '' AS retry
), later AS (
    INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority, retry)
    SELECT clock_timestamp() + b.delay_us::float8 * interval '1 microsecond', b.job_id, b.queue, b.priority, b.retry FROM job b WHERE b.delay_us > 0
), again AS (
    INSERT INTO dblock_queue_ready (queue, priority, ready_at, job_id)
    SELECT b.queue, b.priority, COALESCE(b.ready_at, clock_timestamp()), b.job_id FROM job b WHERE b.delay_us = 0
)
SELECT count(*) FROM job;

-- Gives jobs up for good: they are moved to where the dead are kept.
-- name: DiscardJobs :one
WITH fence AS MATERIALIZED (
    SELECT c.claim_id, c.job_ids FROM dblock_queue_claim c
    WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
    ORDER BY c.claim_id
    FOR NO KEY UPDATE
), rest AS (
    UPDATE dblock_queue_claim k
    SET job_ids = ARRAY(
        SELECT x.job_id FROM pg_catalog.unnest(k.job_ids) AS x(job_id)
        WHERE (x.job_id IN (SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]))) IS NOT TRUE)
    WHERE k.claim_id = ANY (ARRAY(SELECT f.claim_id FROM fence f))
), held AS MATERIALIZED (
    SELECT f.claim_id, pg_catalog.unnest(f.job_ids) AS job_id FROM fence f
), ask AS MATERIALIZED (
    SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, pg_catalog.unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id,
           pg_catalog.unnest(sqlc.arg(attempts)::smallint[]) AS attempt, pg_catalog.unnest(sqlc.arg(errors)::text[]) AS failure
), body AS MATERIALIZED (
    SELECT j.job_id, j.queue, j.kind, j.priority, a.attempt, j.max_attempts, j.enqueued_at, j.unique_key, j.group_key, j.group_most, a.failure, j.payload
    FROM ask a
    CROSS JOIN LATERAL (
        SELECT x.job_id, x.queue, x.kind, x.priority, x.max_attempts, x.enqueued_at, x.unique_key, x.group_key, x.group_most, x.payload
        FROM dblock_queue_job x WHERE x.job_id = a.job_id LIMIT 1 FOR UPDATE
    ) j
    WHERE ((a.claim_id, a.job_id) IN (SELECT h.claim_id, h.job_id FROM held h)) IS TRUE
), dead AS (
    INSERT INTO dblock_queue_dead (job_id, queue, kind, priority, attempt, max_attempts, enqueued_at, unique_key, group_key, group_most, last_error, payload)
    SELECT b.job_id, b.queue, b.kind, b.priority, b.attempt, b.max_attempts, b.enqueued_at, b.unique_key, b.group_key, b.group_most, b.failure, b.payload
    FROM body b
), job AS (
    DELETE FROM dblock_queue_job j WHERE j.job_id = ANY (ARRAY(SELECT b.job_id FROM body b))
    RETURNING j.job_id
)
SELECT count(*) FROM job;

-- Claims of which nothing is outstanding. The server may have forgotten ends of their jobs, after a
-- crash or a failover: a claim that has a job left stays. Such a server has ended its sessions. So
-- the jobs are not read if the session is served by the backend that the client has seen since
-- before the claim. Behind a pooler it never is.
-- name: CloseClaims :exec
DELETE FROM dblock_queue_claim c WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
  AND (pg_backend_pid() = sqlc.arg(backend)::int OR NOT EXISTS (SELECT 1 FROM dblock_queue_job j WHERE j.job_id = ANY (c.job_ids)));

-- Of jobs whose end got no answer: how many have not ended.
-- name: CountJobs :one
SELECT count(*) FROM dblock_queue_job j WHERE j.job_id = ANY (sqlc.arg(job_ids)::uuid[]);

-- Waits for a transaction that is about to end a job, and returns a row if the job has not ended.
-- name: AwaitJob :many
SELECT j.job_id FROM dblock_queue_job j WHERE j.job_id = sqlc.arg(job_id) FOR KEY SHARE;
