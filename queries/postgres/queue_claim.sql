-- Takes the first jobs of a queue: "claimed" is what this statement has removed from those that are
-- ready. It does nothing once the member has sent two more heartbeats: a claim whose reply was lost
-- is then reconciled for good. It does nothing if the queue is paused. The rows are found in the
-- order of their key, without a sort; ctid is safe, as they are locked. It looks in spans of that
-- order, one after the other, and no further than it has to. Each is from a priority and a time to
-- the end of a priority. So it does not pass again over rows that were taken and can't be cleaned
-- up yet. A ready row without a job is removed, too, and returned without a kind.
-- name: ClaimJobs :many
WITH head AS MATERIALIZED (
    SELECT h.place
    FROM (SELECT pg_catalog.unnest(sqlc.arg(from_priorities)::smallint[]) AS priority, pg_catalog.unnest(sqlc.arg(from_times)::timestamptz[]) AS ready_at,
                 pg_catalog.unnest(sqlc.arg(to_priorities)::smallint[]) AS last) s
    CROSS JOIN LATERAL (
        SELECT r.ctid AS place FROM dblock_queue_ready r
        WHERE r.queue = sqlc.arg(queue) AND (r.priority, r.ready_at) >= (s.priority, s.ready_at) AND r.priority <= s.last
          AND r.job_id <> ALL (sqlc.arg(passed)::uuid[])
          AND EXISTS (SELECT 1 FROM dblock_member m
                      WHERE m.member_id = sqlc.arg(member_id) AND m.beat <= sqlc.arg(beat)::bigint + 1 AND m.expires_at > clock_timestamp())
          AND NOT EXISTS (SELECT 1 FROM dblock_queue p WHERE p.queue = sqlc.arg(queue) AND p.paused_at IS NOT NULL)
        ORDER BY r.queue, r.priority, r.ready_at, r.job_id
        LIMIT sqlc.arg(most)
        FOR UPDATE OF r SKIP LOCKED
    ) h
    LIMIT sqlc.arg(most)
), taken AS (
    DELETE FROM dblock_queue_ready t WHERE t.ctid = ANY (ARRAY(SELECT h.place FROM head h))
    RETURNING t.job_id, t.priority, t.ready_at
), claim AS (
    INSERT INTO dblock_queue_claim (claim_id, member_id, queue, job_ids)
    SELECT sqlc.arg(claim_id), sqlc.arg(member_id), sqlc.arg(queue), pg_catalog.array_agg(n.job_id) FROM taken n HAVING count(*) > 0
)
SELECT n.job_id, j.kind, n.priority, COALESCE(j.attempt, 0)::smallint AS attempt, COALESCE(j.max_attempts, 0)::smallint AS max_attempts, j.enqueued_at, n.ready_at,
       COALESCE(octet_length(j.payload), 0)::int AS bytes, CASE WHEN octet_length(j.payload) <= sqlc.arg(inline)::int THEN j.payload END AS payload,
       (j.unique_key IS NOT NULL OR j.group_key IS NOT NULL)::boolean AS keyed, (j.begun IS NOT NULL)::boolean AS recorded
FROM taken n LEFT JOIN LATERAL (
    SELECT x.kind, x.attempt, x.max_attempts, x.enqueued_at, x.payload, x.unique_key, x.group_key, x.begun
    FROM dblock_queue_job x WHERE x.job_id = n.job_id LIMIT 1
) j ON true;

-- Payloads that were too large to come with their claim.
-- name: ReadPayloads :many
SELECT j.job_id, j.payload FROM dblock_queue_job j WHERE j.job_id = ANY (sqlc.arg(job_ids)::uuid[]);

-- Takes claims from a member that is gone, a few at a time, and records them for another id. The
-- member can't end their jobs any more. A claim that a zombie is using at this moment is left for
-- the next time. Without every it is one claim.
-- name: AdoptClaims :many
UPDATE dblock_queue_claim c SET member_id = sqlc.arg(heir)
WHERE c.claim_id = ANY (ARRAY(
    SELECT k.claim_id FROM dblock_queue_claim k
    WHERE k.member_id = sqlc.arg(member_id) AND (sqlc.arg(every)::boolean OR k.claim_id = sqlc.arg(only_id)::uuid)
    ORDER BY k.claim_id LIMIT sqlc.arg(most) FOR UPDATE SKIP LOCKED
))
RETURNING c.claim_id, c.job_ids;

-- Those of their jobs that have not ended. It is a statement of its own, after that which took the
-- claims: only then it sees what a zombie had finished before.
-- name: OrphanJobs :many
SELECT a.job_id::uuid AS job_id, a.claim_id::uuid AS claim_id, j.queue, j.kind, j.priority, j.attempt, j.max_attempts, j.enqueued_at::timestamptz AS enqueued_at,
       j.keyed::boolean AS keyed, j.begun::smallint AS begun
FROM (SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, pg_catalog.unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id) a
CROSS JOIN LATERAL (
    SELECT x.queue, x.kind, x.priority, x.attempt, x.max_attempts, COALESCE(x.begun, -1::smallint) AS begun,
           CASE WHEN pg_catalog.isfinite(x.enqueued_at) THEN x.enqueued_at ELSE 'epoch'::timestamptz END AS enqueued_at, (x.unique_key IS NOT NULL OR x.group_key IS NOT NULL) AS keyed
    FROM dblock_queue_job x WHERE x.job_id = a.job_id LIMIT 1
) j;

-- Requests to cancel them go with them.
-- name: AdoptCancels :exec
UPDATE dblock_queue_cancel c SET member_id = sqlc.arg(heir)
WHERE c.member_id = sqlc.arg(member_id) AND c.job_id = ANY (sqlc.arg(job_ids)::uuid[]);

-- The claims that are recorded for a member.
-- name: RecordedClaims :many
SELECT c.claim_id FROM dblock_queue_claim c WHERE c.member_id = sqlc.arg(member_id);

-- Whose claims there are.
-- name: Claimants :many
SELECT DISTINCT c.member_id FROM dblock_queue_claim c ORDER BY c.member_id;

-- Which of them are alive.
-- name: LivingMembers :many
SELECT m.member_id FROM dblock_member m
WHERE m.member_id = ANY (sqlc.arg(member_ids)::uuid[]) AND m.expires_at > clock_timestamp();
