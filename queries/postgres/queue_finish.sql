-- Each of these proves that the claims are still this member's, and keeps them so till its transaction ends: a claim that was taken
-- away has no row. It returns how many jobs it found, so that fewer than were sent are lost.

-- name: FinishJobs :one
WITH fence AS MATERIALIZED (
    SELECT c.claim_id FROM dblock_queue_claim c
    WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
    ORDER BY c.claim_id
    FOR KEY SHARE
), done AS (
    DELETE FROM dblock_queue_job j
    USING (SELECT unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id) a
    WHERE j.job_id = a.job_id AND a.claim_id IN (SELECT f.claim_id FROM fence f)
    RETURNING j.job_id
)
SELECT count(*) FROM done;

-- Gives jobs up for now: they are for later, or ready again where the delay is 0. The claim no longer has them, so that to send it again
-- changes nothing.
-- name: DeferJobs :one
WITH fence AS MATERIALIZED (
    SELECT c.claim_id, c.job_ids FROM dblock_queue_claim c
    WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
    ORDER BY c.claim_id
    FOR NO KEY UPDATE
), rest AS (
    UPDATE dblock_queue_claim k
    SET job_ids = ARRAY(SELECT x.job_id FROM unnest(f.job_ids) AS x(job_id) WHERE x.job_id <> ALL (sqlc.arg(job_ids)::uuid[]))
    FROM fence f WHERE k.claim_id = f.claim_id
), held AS MATERIALIZED (
    SELECT f.claim_id, unnest(f.job_ids) AS job_id FROM fence f
), ask AS MATERIALIZED (
    SELECT unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id,
           unnest(sqlc.arg(attempts)::smallint[]) AS attempt, unnest(sqlc.arg(errors)::text[]) AS failure,
           unnest(sqlc.arg(delays_us)::bigint[]) AS delay_us
), job AS (
    UPDATE dblock_queue_job j SET attempt = a.attempt, last_error = COALESCE(NULLIF(a.failure, ''), j.last_error)
    FROM ask a
    WHERE j.job_id = a.job_id AND EXISTS (SELECT 1 FROM held h WHERE h.claim_id = a.claim_id AND h.job_id = a.job_id)
    RETURNING j.job_id, j.queue, j.priority, a.delay_us
), later AS (
    INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority)
    SELECT clock_timestamp() + b.delay_us * interval '1 microsecond', b.job_id, b.queue, b.priority FROM job b WHERE b.delay_us > 0
), again AS (
    INSERT INTO dblock_queue_ready (queue, priority, job_id)
    SELECT b.queue, b.priority, b.job_id FROM job b WHERE b.delay_us = 0
)
SELECT count(*) FROM job;

-- Gives jobs up for good: they are moved to where the dead are kept.
-- name: BuryJobs :one
WITH fence AS MATERIALIZED (
    SELECT c.claim_id, c.job_ids FROM dblock_queue_claim c
    WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
    ORDER BY c.claim_id
    FOR NO KEY UPDATE
), rest AS (
    UPDATE dblock_queue_claim k
    SET job_ids = ARRAY(SELECT x.job_id FROM unnest(f.job_ids) AS x(job_id) WHERE x.job_id <> ALL (sqlc.arg(job_ids)::uuid[]))
    FROM fence f WHERE k.claim_id = f.claim_id
), held AS MATERIALIZED (
    SELECT f.claim_id, unnest(f.job_ids) AS job_id FROM fence f
), ask AS MATERIALIZED (
    SELECT unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id,
           unnest(sqlc.arg(attempts)::smallint[]) AS attempt, unnest(sqlc.arg(errors)::text[]) AS failure
), job AS (
    DELETE FROM dblock_queue_job j USING ask a
    WHERE j.job_id = a.job_id AND EXISTS (SELECT 1 FROM held h WHERE h.claim_id = a.claim_id AND h.job_id = a.job_id)
    RETURNING j.job_id, j.queue, j.kind, j.priority, j.max_attempts, j.enqueued_at, j.unique_key, j.group_key, j.group_most, j.payload
), dead AS (
    INSERT INTO dblock_queue_dead (job_id, queue, kind, priority, attempt, max_attempts, enqueued_at, unique_key, group_key, group_most, last_error, payload)
    SELECT b.job_id, b.queue, b.kind, b.priority, a.attempt, b.max_attempts, b.enqueued_at, b.unique_key, b.group_key, b.group_most, a.failure, b.payload
    FROM job b JOIN ask a ON a.job_id = b.job_id
)
SELECT count(*) FROM job;

-- Claims of which nothing is outstanding.
-- name: CloseClaims :exec
DELETE FROM dblock_queue_claim c WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id);

-- Of jobs whose end got no answer: how many have not ended.
-- name: CountJobs :one
SELECT count(*) FROM dblock_queue_job j WHERE j.job_id = ANY (sqlc.arg(job_ids)::uuid[]);

-- Waits for whoever is about to end a job, and tells by a row that it has not ended.
-- name: AwaitJob :many
SELECT j.job_id FROM dblock_queue_job j WHERE j.job_id = sqlc.arg(job_id) FOR KEY SHARE;
