-- To end jobs of a claim, its rows are deleted first, which proves that they were there; what
-- becomes of the jobs comes after that in the same transaction. Fewer rows than were sent: some are
-- lost, and LockClaimed returns the others.

--
-- Rows are joined by their whole key. With a list of keys the server reads a small table whole, and
-- waits for rows that others have locked.

-- name: EndClaimed :execrows
DELETE c
FROM ( /*dblock:asks*/
    SELECT sqlc.arg(job_id) AS job_id
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_claim c FORCE INDEX (PRIMARY)
ON c.member_id = sqlc.arg(member_id) AND c.claim_id = sqlc.arg(claim_id) AND c.job_id = ask.job_id;

-- The same of a claim of which nothing is outstanding: a server takes its time to read and to plan
-- a list of hundreds.
-- name: EndClaim :execrows
DELETE FROM dblock_queue_claim WHERE member_id = sqlc.arg(member_id) AND claim_id = sqlc.arg(claim_id);

-- name: LockClaimed :many
SELECT c.job_id
FROM ( /*dblock:asks*/
    SELECT sqlc.arg(job_id) AS job_id
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_claim c FORCE INDEX (PRIMARY)
ON c.member_id = sqlc.arg(member_id) AND c.claim_id = sqlc.arg(claim_id) AND c.job_id = ask.job_id
LIMIT 18446744073709551615
FOR UPDATE;

-- It waits for no row of a job that another transaction has locked. The LIMIT keeps the server from
-- merging the inner SELECT into the DELETE.
-- name: FinishJobs :execrows
DELETE j
FROM (
    SELECT b.job_id
    FROM ( /*dblock:asks*/
        SELECT CAST(sqlc.arg(job_id) AS BINARY) AS job_id
    /*dblock:end*/) ask
    STRAIGHT_JOIN dblock_queue_job b FORCE INDEX (PRIMARY) ON b.job_id = ask.job_id
    LIMIT 100000
    FOR UPDATE NOWAIT
) own
STRAIGHT_JOIN dblock_queue_job j FORCE INDEX (PRIMARY) ON j.job_id = own.job_id;

-- Records that the next attempts of jobs begin, if their claims are still the member's. It locks
-- the rows of the claims, too: nothing takes them away meanwhile. It passes over rows that are
-- locked. The LIMIT keeps the server from merging the inner SELECT into the UPDATE.
-- name: BeginJobs :exec
UPDATE (
    SELECT b.job_id
    FROM ( /*dblock:asks*/
        SELECT CAST(sqlc.arg(member_id) AS BINARY) AS member_id, CAST(sqlc.arg(claim_id) AS BINARY) AS claim_id, CAST(sqlc.arg(job_id) AS BINARY) AS job_id
    /*dblock:end*/) ask
    STRAIGHT_JOIN dblock_queue_claim c FORCE INDEX (PRIMARY) ON c.member_id = ask.member_id AND c.claim_id = ask.claim_id AND c.job_id = ask.job_id
    STRAIGHT_JOIN dblock_queue_job b FORCE INDEX (PRIMARY) ON b.job_id = c.job_id
    LIMIT 100000
    FOR UPDATE SKIP LOCKED
) own
STRAIGHT_JOIN dblock_queue_job j FORCE INDEX (PRIMARY) ON j.job_id = own.job_id
SET j.begun = LEAST(j.attempt, 32766) + 1;

-- Which of some jobs a member has claimed, and which of them are recorded as begun.
-- name: BegunJobs :many
SELECT c.job_id, CAST(COALESCE(j.begun > j.attempt, 0) AS SIGNED) AS begun
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(member_id) AS BINARY) AS member_id, CAST(sqlc.arg(claim_id) AS BINARY) AS claim_id, CAST(sqlc.arg(job_id) AS BINARY) AS job_id
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_claim c FORCE INDEX (PRIMARY) ON c.member_id = ask.member_id AND c.claim_id = ask.claim_id AND c.job_id = ask.job_id
STRAIGHT_JOIN dblock_queue_job j FORCE INDEX (PRIMARY) ON j.job_id = c.job_id
LIMIT 18446744073709551615;

-- It waits for no row of a job, either. records: their beginnings are recorded from now on, and
-- none has begun that has not ended.
-- name: NoteAttempts :exec
UPDATE (
    SELECT b.job_id, ask.attempt, ask.failure, ask.records
    FROM ( /*dblock:asks*/
        SELECT CAST(sqlc.arg(job_id) AS BINARY) AS job_id, CAST(sqlc.arg(attempt) AS SIGNED) AS attempt, CAST(sqlc.arg(failure) AS BINARY) AS failure,
               CAST(sqlc.arg(records) AS SIGNED) AS records
    /*dblock:end*/) ask
    STRAIGHT_JOIN dblock_queue_job b FORCE INDEX (PRIMARY) ON b.job_id = ask.job_id
    LIMIT 100000
    FOR UPDATE NOWAIT
) own
STRAIGHT_JOIN dblock_queue_job j FORCE INDEX (PRIMARY) ON j.job_id = own.job_id
SET j.attempt = own.attempt, j.last_error = COALESCE(NULLIF(own.failure, ''), j.last_error), j.begun = IF(own.records = 1, own.attempt, j.begun);

-- name: RescheduleJobs :execrows
INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority, retry)
SELECT TIMESTAMPADD(MICROSECOND, ask.delay_us, +UTC_TIMESTAMP(6)), j.job_id, j.queue, j.priority, ask.retry
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(job_id) AS BINARY) AS job_id, CAST(sqlc.arg(delay_us) AS SIGNED) AS delay_us, CAST(sqlc.arg(retry) AS SIGNED) AS retry
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_job j FORCE INDEX (PRIMARY) ON j.job_id = ask.job_id;

-- name: ReadyAgainSince :execrows
INSERT INTO dblock_queue_ready (queue, priority, ready_at, job_id)
SELECT j.queue, j.priority, TIMESTAMPADD(MICROSECOND, ask.ready_us, CAST('1970-01-01' AS DATETIME(6))), j.job_id
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(job_id) AS BINARY) AS job_id, CAST(sqlc.arg(ready_us) AS SIGNED) AS ready_us
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_job j FORCE INDEX (PRIMARY) ON j.job_id = ask.job_id;

-- name: DiscardJobs :execrows
INSERT INTO dblock_queue_dead (job_id, queue, kind, priority, attempt, max_attempts, enqueued_at, unique_key, group_key, group_most, last_error, payload)
SELECT j.job_id, j.queue, j.kind, j.priority, ask.attempt, j.max_attempts, GREATEST(j.enqueued_at, CAST('1970-01-01' AS DATETIME(6))), j.unique_key, j.group_key, j.group_most, ask.failure, j.payload
FROM ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(job_id) AS BINARY) AS job_id, CAST(sqlc.arg(attempt) AS SIGNED) AS attempt, CAST(sqlc.arg(failure) AS BINARY) AS failure
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_job j FORCE INDEX (PRIMARY) ON j.job_id = ask.job_id;

-- Jobs that are to be done are ready again.
-- name: ReadyAgain :execrows
INSERT INTO dblock_queue_ready (queue, priority, job_id)
SELECT j.queue, j.priority, j.job_id FROM dblock_queue_job j WHERE j.job_id IN (sqlc.slice(job_ids));

-- Of jobs whose end got no answer: how many have not ended.
-- name: CountJobs :one
SELECT COUNT(*) AS standing FROM dblock_queue_job j WHERE j.job_id IN (sqlc.slice(job_ids))
LIMIT 1;

-- Waits for a transaction that is about to end a job, and returns a row if the job has not ended.
-- name: AwaitJob :many
SELECT j.job_id FROM dblock_queue_job j WHERE j.job_id = sqlc.arg(job_id)
LIMIT 18446744073709551615
FOR UPDATE;
