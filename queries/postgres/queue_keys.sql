-- Unique keys and groups. A transaction that needs locks of both kinds takes those of
-- dblock_queue_unique first, then those of dblock_queue_key, each in the order of the key. What
-- reads a group is a statement of its own, after that which has locked it: only then it sees what
-- others have done before.

-- EnqueueJobs for jobs of which some have keys. It returns those whose unique key another job has.
-- Jobs of a group that need not wait for a time are neither ready nor blocked yet: see AssignJobs.
-- The last condition reads notified, so that the notification is sent in any case.
-- name: EnqueueKeyed :many
WITH ask AS MATERIALIZED (
    SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, pg_catalog.unnest(sqlc.arg(queues)::text[]) AS queue, pg_catalog.unnest(sqlc.arg(kinds)::text[]) AS kind,
           pg_catalog.unnest(sqlc.arg(priorities)::smallint[]) AS priority, pg_catalog.unnest(sqlc.arg(max_attempts)::smallint[]) AS max_attempts,
           pg_catalog.unnest(sqlc.arg(delays_us)::bigint[]) AS delay_us, pg_catalog.unnest(sqlc.arg(payloads)::bytea[]) AS payload,
           pg_catalog.unnest(sqlc.arg(unique_keys)::text[]) AS unique_key, pg_catalog.unnest(sqlc.arg(group_keys)::text[]) AS group_key,
           pg_catalog.unnest(sqlc.arg(mosts)::int[]) AS most
), won AS (
    INSERT INTO dblock_queue_unique (queue, unique_key, job_id)
    SELECT a.queue, a.unique_key, a.job_id FROM ask a WHERE a.unique_key <> '' ORDER BY a.queue COLLATE "C", a.unique_key COLLATE "C"
    ON CONFLICT (queue, unique_key) DO NOTHING
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
    SELECT clock_timestamp() + t.delay_us::float8 * interval '1 microsecond', t.job_id, t.queue, t.priority, NULLIF(t.group_key, '')
    FROM todo t WHERE t.delay_us > 0
), ready AS (
    INSERT INTO dblock_queue_ready (queue, priority, job_id)
    SELECT t.queue, t.priority, t.job_id FROM todo t WHERE t.delay_us = 0 AND t.group_key = ''
), notified AS MATERIALIZED (
    SELECT pg_catalog.count(pg_catalog.pg_notify(sqlc.arg(channel), 'jobs :' || pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(d.queue, 'UTF8')), 'hex'))) AS queues
    FROM (SELECT DISTINCT t.queue FROM todo t WHERE t.delay_us = 0 AND sqlc.arg(channel)::text <> '') d
)
SELECT a.job_id::uuid AS job_id FROM ask a CROSS JOIN notified
WHERE CASE WHEN notified.queues < 0 OR a.unique_key = '' THEN false ELSE a.job_id NOT IN (SELECT w.job_id FROM won w) END;

-- Reads which jobs have some unique keys. unconfirmed: see ConfirmCommits.
-- name: KeyHolders :many
SELECT u.queue, u.unique_key, u.job_id,
       (pg_catalog.current_setting('synchronous_standby_names') <> ''::text)::boolean AS unconfirmed
FROM (SELECT pg_catalog.unnest(sqlc.arg(queues)::text[]) AS queue, pg_catalog.unnest(sqlc.arg(unique_keys)::text[]) AS unique_key) a
CROSS JOIN LATERAL (
    SELECT x.queue, x.unique_key, x.job_id FROM dblock_queue_unique x WHERE x.queue = a.queue AND x.unique_key = a.unique_key LIMIT 1
) u;

-- Locks groups to which jobs come, and makes those that there are not. Others are given their
-- limits if there are such groups. Jobs that were enqueued before keep the limits that groups have.
-- name: OpenGroups :exec
INSERT INTO dblock_queue_key (queue, group_key, most, taken)
SELECT a.queue, a.group_key, a.most, 0
FROM (SELECT pg_catalog.unnest(sqlc.arg(queues)::text[]) AS queue, pg_catalog.unnest(sqlc.arg(group_keys)::text[]) AS group_key,
             pg_catalog.unnest(sqlc.arg(mosts)::int[]) AS most, pg_catalog.unnest(sqlc.arg(comes)::boolean[]) AS comes) a
WHERE a.comes OR COALESCE((SELECT k.most <> a.most FROM dblock_queue_key k WHERE k.queue = a.queue AND k.group_key = a.group_key LIMIT 1), false)
ORDER BY a.queue COLLATE "C", a.group_key COLLATE "C"
ON CONFLICT (queue, group_key) DO UPDATE SET most = CASE WHEN sqlc.arg(keeps)::boolean THEN dblock_queue_key.most ELSE excluded.most END;

-- Makes jobs ready, in the order of the array, while their groups are below their limits and no job
-- of theirs waits. The others wait. The groups are locked. No job waits in a group that has no
-- place taken: the transaction may have an old snapshot, in which jobs of a group wait that has
-- ended since, and was made anew.
-- name: AssignJobs :exec
WITH come AS MATERIALIZED (
    SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, pg_catalog.generate_subscripts(sqlc.arg(job_ids)::uuid[], 1) AS place,
           pg_catalog.unnest(sqlc.arg(queues)::text[]) AS queue, pg_catalog.unnest(sqlc.arg(group_keys)::text[]) AS group_key,
           pg_catalog.unnest(sqlc.arg(priorities)::smallint[]) AS priority
), sized AS MATERIALIZED (
    SELECT c.queue, c.group_key, count(*) AS jobs FROM come c GROUP BY c.queue, c.group_key
), room AS MATERIALIZED (
    SELECT k.place, s.queue, s.group_key, s.jobs, k.next_seq, k.places
    FROM sized s
    CROSS JOIN LATERAL (
        SELECT g.ctid::tid AS place, g.next_seq,
               CASE WHEN g.taken > 0 AND EXISTS (SELECT 1 FROM dblock_queue_blocked b WHERE b.queue = s.queue AND b.group_key = s.group_key) THEN 0
                    ELSE GREATEST(g.most - g.taken, 0) END AS places
        FROM dblock_queue_key g WHERE g.queue = s.queue AND g.group_key = s.group_key LIMIT 1
    ) k
), counted AS (
    UPDATE dblock_queue_key c SET taken = c.taken + LEAST(r.jobs, r.places)::int, next_seq = c.next_seq + r.jobs
    FROM room r WHERE c.ctid = r.place
), ask AS MATERIALIZED (
    SELECT u.queue, u.group_key, u.job_id, u.priority, u.place,
           pg_catalog.max(u.next_seq) OVER one AS next_seq, pg_catalog.max(u.places) OVER one AS places,
           pg_catalog.count(u.job_id) OVER (PARTITION BY u.queue, u.group_key ORDER BY u.place) AS n
    FROM (
        SELECT c.queue, c.group_key, c.job_id, c.priority, c.place, NULL::bigint AS next_seq, NULL::int AS places FROM come c
        UNION ALL
        SELECT r.queue, r.group_key, NULL::uuid, NULL::smallint, 0, r.next_seq, r.places FROM room r
    ) u
    WINDOW one AS (PARTITION BY u.queue, u.group_key)
), ready AS (
    INSERT INTO dblock_queue_ready (queue, priority, job_id)
    SELECT x.queue, x.priority, x.job_id FROM ask x WHERE x.job_id IS NOT NULL AND x.n <= x.places ORDER BY x.place
)
INSERT INTO dblock_queue_blocked (queue, group_key, seq, job_id, priority)
SELECT x.queue, x.group_key, x.next_seq + x.n - 1, x.job_id, x.priority FROM ask x WHERE x.job_id IS NOT NULL AND x.n > x.places;

-- The groups of the first jobs whose time has come, behind one of them. If there are as many as
-- were asked for, the last row is the last job.
-- name: DueGroups :many
WITH due AS MATERIALIZED (
    SELECT s.run_at, s.job_id, s.queue, s.group_key FROM dblock_queue_scheduled s
    WHERE s.run_at <= statement_timestamp() AND (s.run_at, s.job_id) > (sqlc.arg(after_at)::timestamptz, sqlc.arg(after_job)::uuid)
    ORDER BY s.run_at, s.job_id LIMIT sqlc.arg(most)
)
SELECT DISTINCT d.queue, COALESCE(d.group_key, '')::text AS group_key, NULL::timestamptz AS run_at, NULL::uuid AS job_id
FROM due d WHERE d.group_key IS NOT NULL
UNION ALL
(SELECT l.queue, '', l.run_at, l.job_id FROM due l ORDER BY l.run_at, l.job_id OFFSET sqlc.arg(most)::int - 1);

-- Jobs of some groups whose time has come, behind one of them: they are to be placed.
-- name: TakeDueGrouped :many
WITH head AS MATERIALIZED (
    SELECT s.ctid::tid AS place FROM dblock_queue_scheduled s
    WHERE s.run_at <= statement_timestamp() AND s.group_key IS NOT NULL
      AND (s.run_at, s.job_id) > (sqlc.arg(after_at)::timestamptz, sqlc.arg(after_job)::uuid)
      AND ((s.queue, s.group_key) IN (SELECT pg_catalog.unnest(sqlc.arg(queues)::text[]), pg_catalog.unnest(sqlc.arg(group_keys)::text[]))) IS TRUE
    ORDER BY s.run_at, s.job_id LIMIT sqlc.arg(most) FOR UPDATE SKIP LOCKED
)
DELETE FROM dblock_queue_scheduled d WHERE d.ctid = ANY (ARRAY(SELECT h.place FROM head h))
RETURNING d.run_at, d.job_id, d.queue, d.priority, COALESCE(d.group_key, '')::text AS group_key,
    COALESCE((SELECT x.group_most FROM dblock_queue_job x WHERE x.job_id = d.job_id), 0)::int AS group_most;

-- The following four are sent in this order, before jobs that have keys are deleted, all with the
-- same jobs. They count only jobs that claims of the member have, and keep the claims the member's
-- till the transaction ends. A job that was discarded before is in no such claim: if it was retried
-- since, its keys stay its own.

-- name: FreeUnique :exec
WITH fence AS MATERIALIZED (
    SELECT c.claim_id, c.job_ids FROM dblock_queue_claim c
    WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
    ORDER BY c.claim_id
    FOR KEY SHARE
), held AS MATERIALIZED (
    SELECT f.claim_id, pg_catalog.unnest(f.job_ids) AS job_id FROM fence f
), ask AS MATERIALIZED (
    SELECT a.job_id, j.queue, j.unique_key
    FROM (SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, pg_catalog.unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id) a
    CROSS JOIN LATERAL (
        SELECT x.queue, x.unique_key FROM dblock_queue_job x WHERE x.job_id = a.job_id AND x.unique_key IS NOT NULL LIMIT 1
    ) j
    WHERE ((a.claim_id, a.job_id) IN (SELECT h.claim_id, h.job_id FROM held h)) IS TRUE
    ORDER BY j.queue, j.unique_key
), own AS MATERIALIZED (
    SELECT u.place
    FROM ask a
    CROSS JOIN LATERAL (
        SELECT y.ctid::tid AS place FROM dblock_queue_unique y
        WHERE y.queue = a.queue AND y.unique_key = a.unique_key AND y.job_id = a.job_id
        LIMIT 1 FOR UPDATE
    ) u
)
DELETE FROM dblock_queue_unique d WHERE d.ctid = ANY (ARRAY(SELECT o.place FROM own o));

-- name: LockGroups :exec
WITH ask AS MATERIALIZED (
    SELECT DISTINCT j.queue, j.group_key FROM dblock_queue_job j
    WHERE j.job_id = ANY (sqlc.arg(job_ids)::uuid[]) AND j.group_key IS NOT NULL
    ORDER BY j.queue, j.group_key
)
SELECT k.taken
FROM ask a
CROSS JOIN LATERAL (
    SELECT x.taken FROM dblock_queue_key x WHERE x.queue = a.queue AND x.group_key = a.group_key
    LIMIT 1 FOR UPDATE
) k;

-- name: FreeGroupSlots :exec
WITH held AS MATERIALIZED (
    SELECT c.claim_id, pg_catalog.unnest(c.job_ids) AS job_id FROM dblock_queue_claim c
    WHERE c.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND c.member_id = sqlc.arg(member_id)
), ended AS MATERIALIZED (
    SELECT j.queue, j.group_key, count(*)::int AS jobs
    FROM (SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, pg_catalog.unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id) a
    CROSS JOIN LATERAL (
        SELECT x.queue, x.group_key FROM dblock_queue_job x WHERE x.job_id = a.job_id AND x.group_key IS NOT NULL LIMIT 1
    ) j
    WHERE ((a.claim_id, a.job_id) IN (SELECT h.claim_id, h.job_id FROM held h)) IS TRUE
    GROUP BY j.queue, j.group_key
), room AS MATERIALIZED (
    SELECT g.place, e.jobs
    FROM ended e
    CROSS JOIN LATERAL (SELECT x.ctid::tid AS place FROM dblock_queue_key x WHERE x.queue = e.queue AND x.group_key = e.group_key LIMIT 1) g
)
UPDATE dblock_queue_key k SET taken = k.taken - r.jobs FROM room r WHERE k.ctid = r.place;

-- The first of those that wait are ready, if their groups are below their limits. An empty group is
-- deleted.
-- name: AdmitJobs :exec
WITH held AS MATERIALIZED (
    SELECT f.claim_id, pg_catalog.unnest(f.job_ids) AS job_id FROM dblock_queue_claim f
    WHERE f.claim_id = ANY (sqlc.arg(claim_ids)::uuid[]) AND f.member_id = sqlc.arg(member_id)
), groups AS MATERIALIZED (
    SELECT DISTINCT j.queue, j.group_key
    FROM (SELECT pg_catalog.unnest(sqlc.arg(job_ids)::uuid[]) AS job_id, pg_catalog.unnest(sqlc.arg(of_claims)::uuid[]) AS claim_id) a
    CROSS JOIN LATERAL (
        SELECT x.queue, x.group_key FROM dblock_queue_job x WHERE x.job_id = a.job_id AND x.group_key IS NOT NULL LIMIT 1
    ) j
    WHERE ((a.claim_id, a.job_id) IN (SELECT h.claim_id, h.job_id FROM held h)) IS TRUE
), room AS MATERIALIZED (
    SELECT g.queue, g.group_key, k.place, k.taken, k.places
    FROM groups g
    CROSS JOIN LATERAL (
        SELECT x.ctid::tid AS place, x.taken, GREATEST(x.most - x.taken, 0) AS places
        FROM dblock_queue_key x WHERE x.queue = g.queue AND x.group_key = g.group_key LIMIT 1
    ) k
), head AS MATERIALIZED (
    SELECT r.queue, r.group_key, r.place AS of, b.place, b.seq, b.job_id, b.priority
    FROM room r
    CROSS JOIN LATERAL (
        SELECT x.ctid::tid AS place, x.seq, x.job_id, x.priority FROM dblock_queue_blocked x
        WHERE x.queue = r.queue AND x.group_key = r.group_key
        ORDER BY x.queue, x.group_key, x.seq LIMIT r.places
    ) b
), moved AS (
    DELETE FROM dblock_queue_blocked d WHERE d.ctid = ANY (ARRAY(SELECT h.place FROM head h))
), ready AS (
    INSERT INTO dblock_queue_ready (queue, priority, job_id)
    SELECT h.queue, h.priority, h.job_id FROM head h ORDER BY h.queue, h.group_key, h.seq
), more AS MATERIALIZED (
    SELECT h.of, count(*)::int AS jobs FROM head h GROUP BY h.of
), counted AS (
    UPDATE dblock_queue_key c SET taken = c.taken + m.jobs FROM more m WHERE c.ctid = m.of
)
DELETE FROM dblock_queue_key e
WHERE e.ctid = ANY (ARRAY(SELECT o.place FROM room o WHERE o.taken = 0 AND (o.place IN (SELECT m.of FROM more m)) IS NOT TRUE));
