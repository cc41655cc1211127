-- Unique keys and groups. Whoever needs locks of both kinds takes those of dblock_queue_unique first, then those of dblock_queue_key,
-- each in the order of the key. What reads a group is a statement of its own, after that which has locked it: only then it sees what
-- others have done before.

-- EnqueueJobs for jobs of which some have keys. It returns those that another job with the same unique key stands in the way of. Jobs
-- of a group that need not wait for a time are neither ready nor blocked yet: see PlaceJobs. The last condition reads told, so that it is
-- told in any case.
-- name: EnqueueKeyed :many
WITH ask AS MATERIALIZED (
    SELECT unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, unnest(sqlc.arg(queues)::text[]) AS queue, unnest(sqlc.arg(kinds)::text[]) AS kind,
           unnest(sqlc.arg(priorities)::smallint[]) AS priority, unnest(sqlc.arg(max_attempts)::smallint[]) AS max_attempts,
           unnest(sqlc.arg(delays_us)::bigint[]) AS delay_us, unnest(sqlc.arg(payloads)::bytea[]) AS payload,
           unnest(sqlc.arg(unique_keys)::text[]) AS unique_key, unnest(sqlc.arg(group_keys)::text[]) AS group_key,
           unnest(sqlc.arg(mosts)::int[]) AS most
), won AS (
    INSERT INTO dblock_queue_unique (queue, unique_key, job_id)
    SELECT a.queue, a.unique_key, a.job_id FROM ask a WHERE a.unique_key <> '' ORDER BY a.queue COLLATE "C", a.unique_key COLLATE "C"
    ON CONFLICT DO NOTHING
    RETURNING job_id
), todo AS MATERIALIZED (
    SELECT a.job_id, a.queue, a.kind, a.priority, a.max_attempts, a.delay_us, a.payload, a.unique_key, a.group_key, a.most
    FROM ask a WHERE a.unique_key = '' OR a.job_id IN (SELECT w.job_id FROM won w)
), job AS (
    INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, unique_key, group_key, group_most, payload)
    SELECT t.job_id, t.queue, t.kind, t.priority, t.max_attempts, NULLIF(t.unique_key, ''), NULLIF(t.group_key, ''), NULLIF(t.most, 0), t.payload
    FROM todo t
), later AS (
    INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority, group_key)
    SELECT clock_timestamp() + t.delay_us * interval '1 microsecond', t.job_id, t.queue, t.priority, NULLIF(t.group_key, '')
    FROM todo t WHERE t.delay_us > 0
), ready AS (
    INSERT INTO dblock_queue_ready (queue, priority, job_id)
    SELECT t.queue, t.priority, t.job_id FROM todo t WHERE t.delay_us = 0 AND t.group_key = ''
), told AS MATERIALIZED (
    SELECT count(pg_notify(sqlc.arg(channel), 'jobs :' || d.queue)) AS queues
    FROM (SELECT DISTINCT t.queue FROM todo t WHERE t.delay_us = 0 AND sqlc.arg(channel)::text <> '') d
)
SELECT a.job_id::uuid AS job_id FROM ask a CROSS JOIN told
WHERE CASE WHEN told.queues < 0 OR a.unique_key = '' THEN false ELSE a.job_id NOT IN (SELECT w.job_id FROM won w) END;

-- Who has some unique keys.
-- name: KeyHolders :many
SELECT u.queue, u.unique_key, u.job_id
FROM (SELECT unnest(sqlc.arg(queues)::text[]) AS queue, unnest(sqlc.arg(unique_keys)::text[]) AS unique_key) a
JOIN dblock_queue_unique u ON u.queue = a.queue AND u.unique_key = a.unique_key;

-- Locks the groups of jobs, and makes those that there are not. The job that was enqueued last says how many there may be at once.
-- name: OpenGroups :exec
INSERT INTO dblock_queue_key (queue, group_key, most, taken)
SELECT DISTINCT ON (j.queue, j.group_key) j.queue, j.group_key, j.group_most, 0
FROM dblock_queue_job j
WHERE j.job_id = ANY (sqlc.arg(job_ids)::uuid[]) AND j.group_key IS NOT NULL
ORDER BY j.queue, j.group_key, j.job_id DESC
ON CONFLICT (queue, group_key) DO UPDATE SET most = excluded.most;

-- Has jobs be ready, in the order of the array, as long as their groups have room and nobody waits; the others wait. The groups are locked.
-- name: PlaceJobs :exec
WITH ask AS MATERIALIZED (
    SELECT j.queue, j.group_key, j.job_id, j.priority, k.next_seq, a.place,
           row_number() OVER (PARTITION BY j.queue, j.group_key ORDER BY a.place) AS n,
           count(*) OVER (PARTITION BY j.queue, j.group_key) AS jobs,
           CASE WHEN EXISTS (SELECT 1 FROM dblock_queue_blocked b WHERE b.queue = k.queue AND b.group_key = k.group_key) THEN 0
                ELSE k.most - k.taken END AS room
    FROM (SELECT unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, generate_subscripts(sqlc.arg(job_ids)::uuid[], 1) AS place) a
    JOIN dblock_queue_job j ON j.job_id = a.job_id
    JOIN dblock_queue_key k ON k.queue = j.queue AND k.group_key = j.group_key
), counted AS (
    UPDATE dblock_queue_key c SET taken = c.taken + GREATEST(LEAST(x.jobs, x.room), 0)::int, next_seq = c.next_seq + x.jobs
    FROM ask x WHERE x.n = 1 AND c.queue = x.queue AND c.group_key = x.group_key
), ready AS (
    INSERT INTO dblock_queue_ready (queue, priority, job_id)
    SELECT x.queue, x.priority, x.job_id FROM ask x WHERE x.n <= x.room ORDER BY x.place
)
INSERT INTO dblock_queue_blocked (queue, group_key, seq, job_id, priority)
SELECT x.queue, x.group_key, x.next_seq + x.n - 1, x.job_id, x.priority FROM ask x WHERE x.n > x.room;

-- Jobs of groups whose time has come: they are to be placed.
-- name: TakeDueGrouped :many
DELETE FROM dblock_queue_scheduled d
WHERE (d.run_at, d.job_id) IN (
    SELECT s.run_at, s.job_id FROM dblock_queue_scheduled s
    WHERE s.run_at <= statement_timestamp() AND s.group_key IS NOT NULL
    ORDER BY s.run_at, s.job_id LIMIT sqlc.arg(most) FOR UPDATE SKIP LOCKED
)
RETURNING d.run_at, d.job_id;

-- The following four are sent in this order, before jobs that have keys are deleted, all with the same jobs. They count jobs alone whose
-- claims are the member's, and keep those so till the transaction ends; with unfenced there is none to be proven any more.

-- name: FreeUnique :exec
WITH fence AS MATERIALIZED (
    SELECT c.claim_id FROM dblock_queue_claim c
    WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
    ORDER BY c.claim_id
    FOR KEY SHARE
), own AS MATERIALIZED (
    SELECT u.queue, u.unique_key
    FROM (SELECT unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id) a
    JOIN dblock_queue_job j ON j.job_id = a.job_id
    JOIN dblock_queue_unique u ON u.queue = j.queue AND u.unique_key = j.unique_key
    WHERE u.job_id = a.job_id AND (sqlc.arg(unfenced)::boolean OR a.claim_id IN (SELECT f.claim_id FROM fence f))
    ORDER BY u.queue, u.unique_key
    FOR UPDATE OF u
)
DELETE FROM dblock_queue_unique d USING own o WHERE d.queue = o.queue AND d.unique_key = o.unique_key;

-- name: LockGroups :exec
SELECT k.taken
FROM (
    SELECT DISTINCT j.queue, j.group_key FROM dblock_queue_job j
    WHERE j.job_id = ANY (sqlc.arg(job_ids)::uuid[]) AND j.group_key IS NOT NULL
) g
JOIN dblock_queue_key k ON k.queue = g.queue AND k.group_key = g.group_key
ORDER BY k.queue, k.group_key
FOR UPDATE OF k;

-- name: FreePlaces :exec
UPDATE dblock_queue_key k SET taken = k.taken - g.jobs
FROM (
    SELECT j.queue, j.group_key, count(*)::int AS jobs
    FROM (SELECT unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id) a
    JOIN dblock_queue_job j ON j.job_id = a.job_id
    WHERE j.group_key IS NOT NULL
      AND (sqlc.arg(unfenced)::boolean OR a.claim_id IN (
          SELECT c.claim_id FROM dblock_queue_claim c WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)))
    GROUP BY j.queue, j.group_key
) g
WHERE k.queue = g.queue AND k.group_key = g.group_key;

-- The first of those that wait are ready, where their groups have room. A group that nobody is left of is deleted.
-- name: AdmitJobs :exec
WITH room AS MATERIALIZED (
    SELECT k.queue, k.group_key, k.taken, GREATEST(k.most - k.taken, 0) AS places
    FROM (
        SELECT DISTINCT j.queue, j.group_key FROM dblock_queue_job j
        WHERE j.job_id = ANY (sqlc.arg(job_ids)::uuid[]) AND j.group_key IS NOT NULL
    ) g
    JOIN dblock_queue_key k ON k.queue = g.queue AND k.group_key = g.group_key
), head AS MATERIALIZED (
    SELECT r.queue, r.group_key, b.seq, b.job_id, b.priority
    FROM room r
    CROSS JOIN LATERAL (
        SELECT x.seq, x.job_id, x.priority FROM dblock_queue_blocked x
        WHERE x.queue = r.queue AND x.group_key = r.group_key
        ORDER BY x.queue, x.group_key, x.seq LIMIT r.places
    ) b
), moved AS (
    DELETE FROM dblock_queue_blocked d USING head h WHERE d.queue = h.queue AND d.group_key = h.group_key AND d.seq = h.seq
), ready AS (
    INSERT INTO dblock_queue_ready (queue, priority, job_id)
    SELECT h.queue, h.priority, h.job_id FROM head h ORDER BY h.queue, h.group_key, h.seq
), more AS MATERIALIZED (
    SELECT h.queue, h.group_key, count(*)::int AS jobs FROM head h GROUP BY h.queue, h.group_key
), counted AS (
    UPDATE dblock_queue_key c SET taken = c.taken + m.jobs FROM more m WHERE c.queue = m.queue AND c.group_key = m.group_key
)
DELETE FROM dblock_queue_key e USING room o
WHERE e.queue = o.queue AND e.group_key = o.group_key AND o.taken = 0
  AND NOT EXISTS (SELECT 1 FROM dblock_queue_blocked y WHERE y.queue = o.queue AND y.group_key = o.group_key);

-- Jobs with keys, locked, that had their last attempt: they are about to be buried.
-- name: LastAttempts :many
SELECT j.job_id FROM dblock_queue_job j
WHERE j.job_id = ANY (sqlc.arg(job_ids)::uuid[]) AND j.attempt + 1 >= j.max_attempts AND (j.unique_key IS NOT NULL OR j.group_key IS NOT NULL)
ORDER BY j.job_id
FOR NO KEY UPDATE;
