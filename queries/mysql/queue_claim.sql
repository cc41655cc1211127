-- A claim is three of these in one transaction: jobs are written down as the member's, taken from
-- those that are ready by their whole key, and read. It does nothing once the member has sent two
-- more heartbeats: a claim whose reply was lost is then reconciled for good. It does nothing if the
-- queue is paused. The conditions are counts, as a server would make a join of EXISTS, and lock
-- those rows, too. A row whose time is zero is left: in strict mode the server would refuse the
-- whole claim. Of one priority it looks at what became ready from a time on alone: rows before it
-- were taken, and can't be purged yet.
-- name: ClaimJobs :execrows
INSERT INTO dblock_queue_claim (member_id, claim_id, job_id, queue, priority, ready_at)
SELECT sqlc.arg(member_id), sqlc.arg(claim_id), r.job_id, r.queue, r.priority, r.ready_at
FROM dblock_queue_ready r FORCE INDEX (PRIMARY)
WHERE r.queue = sqlc.arg(queue) AND r.ready_at > CAST('1970-01-01' AS DATETIME(6))
  AND (r.priority < sqlc.arg(priority) OR r.priority > sqlc.arg(priority)
       OR r.priority = sqlc.arg(priority) AND r.ready_at >= TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(from_us) AS SIGNED), CAST('1970-01-01' AS DATETIME(6))))
  AND r.job_id NOT IN (sqlc.slice(passed))
  AND (SELECT COUNT(*) FROM dblock_member m
       WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= CAST(sqlc.arg(beat) AS SIGNED) + 1 AND m.expires_at > +UTC_TIMESTAMP(6)) > 0
  AND (SELECT COUNT(*) FROM dblock_queue p WHERE p.queue = sqlc.arg(queue) AND p.paused_at IS NOT NULL) = 0
ORDER BY r.queue, r.priority, r.ready_at, r.job_id
LIMIT ?
FOR UPDATE SKIP LOCKED;

-- name: TakeReady :exec
DELETE r
FROM dblock_queue_claim c
STRAIGHT_JOIN dblock_queue_ready r ON r.queue = c.queue AND r.priority = c.priority AND r.ready_at = c.ready_at AND r.job_id = c.job_id
WHERE c.member_id = sqlc.arg(member_id) AND c.claim_id = sqlc.arg(claim_id);

-- What a claim has removed that is no job.
-- name: DropVoid :exec
DELETE c FROM dblock_queue_claim c
WHERE c.member_id = sqlc.arg(member_id) AND c.claim_id = sqlc.arg(claim_id)
  AND NOT EXISTS (SELECT 1 FROM dblock_queue_job j WHERE j.job_id = c.job_id);

-- name: ClaimedJobs :many
SELECT j.job_id, j.kind, j.priority, j.attempt, j.max_attempts,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', j.enqueued_at), 0) AS SIGNED) AS enqueued_us,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', c.ready_at), 0) AS SIGNED) AS ready_us,
       CAST(OCTET_LENGTH(j.payload) AS SIGNED) AS bytes, IF(OCTET_LENGTH(j.payload) <= CAST(sqlc.arg(inline) AS SIGNED), j.payload, NULL) AS payload,
       CAST(j.unique_key IS NOT NULL OR j.group_key IS NOT NULL AS SIGNED) AS keyed, CAST(j.begun IS NOT NULL AS SIGNED) AS recorded
FROM dblock_queue_claim c
STRAIGHT_JOIN dblock_queue_job j ON j.job_id = c.job_id
WHERE c.member_id = sqlc.arg(member_id) AND c.claim_id = sqlc.arg(claim_id)
LIMIT 18446744073709551615;

-- Payloads that were too large to come with their claim.
-- name: ReadPayloads :many
SELECT j.job_id, j.payload FROM dblock_queue_job j WHERE j.job_id IN (sqlc.slice(job_ids))
LIMIT 18446744073709551615;

-- Claims of a member that has expired. A row that the stopped process has locked is left for the
-- next call.
-- name: ClaimsOf :many
SELECT c.claim_id, c.job_id FROM dblock_queue_claim c
WHERE c.member_id = sqlc.arg(member_id)
ORDER BY c.member_id, c.claim_id, c.job_id
LIMIT ?
FOR UPDATE SKIP LOCKED;

-- Records them for another id: the member can't end their jobs any more.
-- name: AdoptClaimed :execrows
UPDATE ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(job_id) AS BINARY) AS job_id
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_claim c FORCE INDEX (PRIMARY) ON c.job_id = ask.job_id
SET c.member_id = sqlc.arg(heir)
WHERE c.member_id = sqlc.arg(member_id) AND c.claim_id = sqlc.arg(claim_id);

-- Requests to cancel their jobs go with them.
-- name: AdoptCancels :execrows
UPDATE ( /*dblock:asks*/
    SELECT CAST(sqlc.arg(job_id) AS BINARY) AS job_id
/*dblock:end*/) ask
STRAIGHT_JOIN dblock_queue_cancel c FORCE INDEX (PRIMARY) ON c.job_id = ask.job_id
SET c.member_id = sqlc.arg(heir)
WHERE c.member_id = sqlc.arg(member_id);

-- Which jobs of a member, whose claims are locked, others want cancelled.
-- name: CancelsAmong :many
SELECT c.job_id FROM dblock_queue_cancel c FORCE INDEX (PRIMARY)
WHERE c.member_id = sqlc.arg(member_id) AND c.job_id IN (sqlc.slice(job_ids))
LIMIT 18446744073709551615;

-- Those of their jobs that have not ended.
-- name: OrphanJobs :many
SELECT j.job_id, j.queue, j.kind, j.priority, j.attempt, j.max_attempts,
       CAST(COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', j.enqueued_at), 0) AS SIGNED) AS enqueued_us, CAST(COALESCE(j.begun, -1) AS SIGNED) AS begun,
       CAST(j.unique_key IS NOT NULL OR j.group_key IS NOT NULL AS SIGNED) AS keyed
FROM dblock_queue_job j FORCE INDEX (PRIMARY)
WHERE j.job_id IN (sqlc.slice(job_ids))
LIMIT 18446744073709551615;

-- The claims that are recorded for a member.
-- name: RecordedClaims :many
SELECT DISTINCT c.claim_id FROM dblock_queue_claim c WHERE c.member_id = sqlc.arg(member_id)
LIMIT 18446744073709551615;

-- The rows of one claim of a member's own, of which it does not know whether it was made.
-- name: ClaimRows :many
SELECT c.claim_id, c.job_id FROM dblock_queue_claim c
WHERE c.member_id = sqlc.arg(member_id) AND c.claim_id = sqlc.arg(claim_id)
ORDER BY c.job_id
LIMIT 18446744073709551615
FOR UPDATE;

-- Whose claims there are.
-- name: Claimants :many
SELECT DISTINCT c.member_id FROM dblock_queue_claim c LIMIT 18446744073709551615;

-- Which of them are alive.
-- name: LivingMembers :many
SELECT m.member_id FROM dblock_member m
WHERE m.member_id IN (sqlc.slice(member_ids)) AND m.expires_at > +UTC_TIMESTAMP(6)
LIMIT 18446744073709551615;
