-- What people ask and say: how a queue does, where a job is, and that it is to be run again, or not
-- at all. Counts stop at a bound, so that large tables cost nothing much. Ages are by the server's
-- clock.

-- name: PauseQueue :exec
INSERT INTO dblock_queue AS q (queue, paused_at) VALUES (sqlc.arg(queue), clock_timestamp())
ON CONFLICT (queue) DO UPDATE SET paused_at = COALESCE(q.paused_at, EXCLUDED.paused_at);

-- name: ResumeQueue :exec
DELETE FROM dblock_queue q WHERE q.queue = sqlc.arg(queue);

-- name: IsPaused :one
SELECT EXISTS (SELECT 1 FROM dblock_queue q WHERE q.queue = sqlc.arg(queue) AND q.paused_at IS NOT NULL) AS paused;

-- The next queue by name of which there is anything in a table that has an index which begins with
-- the queue; '': none.
-- name: NextQueue :one
SELECT COALESCE(min(n.queue), '')::text AS queue
FROM (
    SELECT min(r.queue) AS queue FROM dblock_queue_ready r WHERE r.queue > sqlc.arg(after)
    UNION ALL SELECT min(b.queue) FROM dblock_queue_blocked b WHERE b.queue > sqlc.arg(after)
    UNION ALL SELECT min(d.queue) FROM dblock_queue_dead d WHERE d.queue > sqlc.arg(after)
    UNION ALL SELECT min(s.queue) FROM dblock_queue_scheduled s WHERE s.queue > sqlc.arg(after)
    UNION ALL SELECT min(p.queue) FROM dblock_queue p WHERE p.queue > sqlc.arg(after)
) n;

-- name: CountQueue :one
SELECT (SELECT count(*) FROM (SELECT r.job_id FROM dblock_queue_ready r WHERE r.queue = sqlc.arg(queue) LIMIT sqlc.arg(most)) x) AS ready,
       (SELECT count(*) FROM (SELECT b.job_id FROM dblock_queue_blocked b WHERE b.queue = sqlc.arg(queue) LIMIT sqlc.arg(most)) y) AS blocked,
       (SELECT count(*) FROM (SELECT d.job_id FROM dblock_queue_dead d WHERE d.queue = sqlc.arg(queue) LIMIT sqlc.arg(most)) z) AS dead,
       (SELECT count(*) FROM (SELECT s.job_id FROM dblock_queue_scheduled s WHERE s.queue = sqlc.arg(queue) AND s.retry = false
                              ORDER BY s.queue, s.retry, s.run_at, s.job_id LIMIT sqlc.arg(most)) u) AS scheduled,
       (SELECT count(*) FROM (SELECT t.job_id FROM dblock_queue_scheduled t WHERE t.queue = sqlc.arg(queue) AND t.retry = true
                              ORDER BY t.queue, t.retry, t.run_at, t.job_id LIMIT sqlc.arg(most)) v) AS retrying,
       COALESCE((SELECT CASE WHEN pg_catalog.isfinite(p.paused_at) THEN EXTRACT(EPOCH FROM clock_timestamp() - p.paused_at) * 1000000::numeric ELSE 0::numeric END FROM dblock_queue p
                 WHERE p.queue = sqlc.arg(queue) AND p.paused_at IS NOT NULL), -1)::bigint AS paused_us;

-- Of the next jobs in order, those of priorities after one: how many there are, the last priority,
-- and how long the oldest has waited.
-- name: OldestReady :one
SELECT count(*) AS jobs, COALESCE(pg_catalog.max(x.priority), 0::smallint)::smallint AS last,
       COALESCE(EXTRACT(EPOCH FROM clock_timestamp() - pg_catalog.min(CASE WHEN pg_catalog.isfinite(x.ready_at) THEN x.ready_at END)) * 1000000::numeric, 0::numeric)::bigint AS age_us
FROM (
    SELECT r.priority, r.ready_at FROM dblock_queue_ready r
    WHERE r.queue = sqlc.arg(queue) AND r.priority > sqlc.arg(after)::int
    ORDER BY r.queue, r.priority, r.ready_at, r.job_id
    LIMIT sqlc.arg(most)
) x;

-- Those of a claim that have ended have no row any more.
-- name: CountClaimed :many
SELECT x.queue, count(*) AS jobs
FROM (SELECT c.queue, pg_catalog.unnest(c.job_ids) AS job_id FROM dblock_queue_claim c LIMIT sqlc.arg(most)) x
JOIN dblock_queue_job j ON j.job_id = x.job_id
GROUP BY x.queue;

-- name: ListReady :many
SELECT r.job_id, CASE WHEN pg_catalog.isfinite(r.ready_at) THEN r.ready_at ELSE 'epoch'::timestamptz END AS at FROM dblock_queue_ready r
WHERE r.queue = sqlc.arg(queue)
ORDER BY r.queue, r.priority, r.ready_at, r.job_id
LIMIT sqlc.arg(most);

-- name: ListScheduled :many
SELECT s.job_id, CASE WHEN pg_catalog.isfinite(s.run_at) THEN s.run_at ELSE 'epoch'::timestamptz END AS at
FROM dblock_queue_scheduled s
WHERE s.queue = sqlc.arg(queue) AND s.retry = sqlc.arg(retry)::boolean
ORDER BY s.queue, s.retry, s.run_at, s.job_id
LIMIT sqlc.arg(most);

-- name: ListBlocked :many
SELECT b.job_id FROM dblock_queue_blocked b
WHERE b.queue = sqlc.arg(queue)
ORDER BY b.queue, b.group_key, b.seq
LIMIT sqlc.arg(most);

-- Jobs that are under way, those of the oldest claims first. A claim lists its jobs that have
-- ended, too, until all have.
-- name: ListClaimed :many
SELECT x.job_id::uuid AS job_id, CASE WHEN pg_catalog.isfinite(x.claimed_at) THEN x.claimed_at ELSE 'epoch'::timestamptz END AS at, COALESCE(m.label, '')::text AS worker
FROM (SELECT pg_catalog.unnest(c.job_ids) AS job_id, c.claimed_at, c.member_id FROM dblock_queue_claim c
      WHERE c.queue = sqlc.arg(queue) ORDER BY c.claimed_at, c.claim_id LIMIT sqlc.arg(look)) x
JOIN dblock_queue_job j ON j.job_id = x.job_id
LEFT JOIN dblock_member m ON m.member_id = x.member_id
ORDER BY x.claimed_at
LIMIT sqlc.arg(most);

-- Those that died before others, the last ones first. A job that died at no time is passed over.
-- name: ListDead :many
SELECT d.job_id, d.queue, d.kind, d.priority, d.attempt, d.max_attempts, CASE WHEN pg_catalog.isfinite(d.enqueued_at) THEN d.enqueued_at ELSE 'epoch'::timestamptz END AS enqueued_at, d.died_at AS at, d.last_error
FROM dblock_queue_dead d
WHERE d.queue = sqlc.arg(queue) AND pg_catalog.isfinite(d.died_at) AND (d.died_at, d.job_id) < (sqlc.arg(before)::timestamptz, sqlc.arg(before_id)::uuid)
ORDER BY d.queue DESC, d.died_at DESC, d.job_id DESC
LIMIT sqlc.arg(most);

-- name: ListHistory :many
SELECT h.job_id, h.queue, h.kind, h.priority, h.attempt, h.outcome, CASE WHEN pg_catalog.isfinite(h.enqueued_at) THEN h.enqueued_at ELSE 'epoch'::timestamptz END AS enqueued_at, CASE WHEN pg_catalog.isfinite(h.finished_at) THEN h.finished_at ELSE 'epoch'::timestamptz END AS at,
       COALESCE(h.reason, '')::text AS reason
FROM (SELECT t.day, t.job_id, t.queue, t.kind, t.priority, t.attempt, t.outcome, t.enqueued_at, t.finished_at, t.reason FROM dblock_queue_history t
      ORDER BY t.day DESC, t.job_id DESC LIMIT sqlc.arg(look)) h
WHERE h.queue = sqlc.arg(queue)::text AND h.outcome = sqlc.arg(outcome)::smallint
ORDER BY h.finished_at DESC, h.job_id DESC
LIMIT sqlc.arg(most);

-- name: JobsOf :many
SELECT j.job_id, j.queue, j.kind, j.priority, j.attempt, j.max_attempts, CASE WHEN pg_catalog.isfinite(j.enqueued_at) THEN j.enqueued_at ELSE 'epoch'::timestamptz END AS enqueued_at, COALESCE(j.last_error, '')::text AS last_error
FROM dblock_queue_job j WHERE j.job_id = ANY (sqlc.arg(job_ids)::uuid[]);

-- name: JobRow :one
SELECT j.queue, j.kind, j.priority, j.attempt, j.max_attempts, CASE WHEN pg_catalog.isfinite(j.enqueued_at) THEN j.enqueued_at ELSE 'epoch'::timestamptz END AS enqueued_at, COALESCE(j.unique_key, '')::text AS unique_key,
       COALESCE(j.group_key, '')::text AS group_key, COALESCE(j.last_error, '')::text AS last_error, j.payload
FROM dblock_queue_job j WHERE j.job_id = sqlc.arg(job_id);

-- name: DeadRow :one
SELECT d.queue, d.kind, d.priority, d.attempt, d.max_attempts, CASE WHEN pg_catalog.isfinite(d.enqueued_at) THEN d.enqueued_at ELSE 'epoch'::timestamptz END AS enqueued_at,
       CASE WHEN pg_catalog.isfinite(d.died_at) THEN d.died_at ELSE 'epoch'::timestamptz END AS at, COALESCE(d.unique_key, '')::text AS unique_key,
       COALESCE(d.group_key, '')::text AS group_key, d.last_error, d.payload
FROM dblock_queue_dead d WHERE d.job_id = sqlc.arg(job_id);

-- Where a job is, in one snapshot: it is in one place at a time. It became ready when it was
-- enqueued, or later. admitted: its group, if it has one, counts it.
-- name: FindJob :many
SELECT 1::int AS state, CASE WHEN pg_catalog.isfinite(r.ready_at) THEN r.ready_at ELSE 'epoch'::timestamptz END AS at, 0::bigint AS seq, NULL::uuid AS member_id, NULL::uuid AS claim_id,
       true::boolean AS admitted
FROM dblock_queue_ready r
WHERE r.queue = sqlc.arg(queue) AND r.priority = sqlc.arg(priority) AND r.ready_at >= sqlc.arg(enqueued_at)::timestamptz - interval '1 hour'
  AND r.job_id = sqlc.arg(job_id)
UNION ALL
SELECT CASE WHEN s.retry THEN 9 ELSE 2 END, CASE WHEN pg_catalog.isfinite(s.run_at) THEN s.run_at ELSE 'epoch'::timestamptz END, 0, NULL, NULL, s.group_key IS NULL
FROM dblock_queue_scheduled s
WHERE s.run_at >= sqlc.arg(enqueued_at)::timestamptz - interval '1 hour' AND s.job_id = sqlc.arg(job_id)
UNION ALL
SELECT 3, sqlc.arg(enqueued_at)::timestamptz, b.seq, NULL, NULL, false FROM dblock_queue_blocked b
WHERE b.queue = sqlc.arg(queue) AND b.group_key = sqlc.arg(group_key)::text AND b.job_id = sqlc.arg(job_id)
UNION ALL
SELECT 4, CASE WHEN pg_catalog.isfinite(c.claimed_at) THEN c.claimed_at ELSE 'epoch'::timestamptz END, 0, c.member_id, c.claim_id, true
FROM dblock_queue_claim c WHERE c.queue = sqlc.arg(queue) AND sqlc.arg(job_id)::uuid = ANY (c.job_ids);

-- name: MemberLabel :one
SELECT m.label FROM dblock_member m WHERE m.member_id = sqlc.arg(member_id);

-- A job that waits is claimed by the caller that ends it, in the transaction that ends it. So all
-- that belongs to an end is done for it, too. A job that its group has not admitted takes no place
-- in it: the number of the group stays as it is.

-- name: TakeReadyJob :exec
WITH taken AS (
    DELETE FROM dblock_queue_ready r
    WHERE r.queue = sqlc.arg(queue) AND r.priority = sqlc.arg(priority) AND r.ready_at = sqlc.arg(at) AND r.job_id = sqlc.arg(job_id)
    RETURNING r.job_id
)
INSERT INTO dblock_queue_claim (claim_id, member_id, queue, job_ids)
SELECT sqlc.arg(claim_id), sqlc.arg(member_id), sqlc.arg(queue), ARRAY[t.job_id] FROM taken t;

-- name: TakeScheduledJob :exec
WITH taken AS (
    DELETE FROM dblock_queue_scheduled s
    WHERE s.run_at = sqlc.arg(at) AND s.job_id = sqlc.arg(job_id) AND (s.group_key IS NULL) = sqlc.arg(admitted)::boolean
    RETURNING s.job_id, s.queue
)
INSERT INTO dblock_queue_claim (claim_id, member_id, queue, job_ids)
SELECT sqlc.arg(claim_id), sqlc.arg(member_id), t.queue, ARRAY[t.job_id] FROM taken t;

-- The row of its group is locked.
-- name: TakeBlockedJob :exec
WITH taken AS (
    DELETE FROM dblock_queue_blocked b
    WHERE b.queue = sqlc.arg(queue) AND b.group_key = sqlc.arg(group_key) AND b.seq = sqlc.arg(seq) AND b.job_id = sqlc.arg(job_id)
    RETURNING b.job_id, b.queue
)
INSERT INTO dblock_queue_claim (claim_id, member_id, queue, job_ids)
SELECT sqlc.arg(claim_id), sqlc.arg(member_id), t.queue, ARRAY[t.job_id] FROM taken t;

-- Dead jobs again, with all their attempts, except those whose unique key another job has. Of
-- several with the same key it is the one that died last. With a group_key they are admitted as
-- jobs whose time has come, in the order in which they were enqueued.
-- name: RetryJob :one
WITH head AS MATERIALIZED (
    SELECT h.ctid::tid AS place, h.job_id, h.queue, h.unique_key, h.died_at FROM dblock_queue_dead h
    WHERE h.job_id = ANY (sqlc.arg(job_ids)::uuid[])
    ORDER BY h.job_id FOR UPDATE
), alone AS (
    INSERT INTO dblock_queue_unique (queue, unique_key, job_id)
    SELECT h.queue, h.unique_key, h.job_id FROM head h WHERE h.unique_key IS NOT NULL
    ORDER BY h.queue, h.unique_key, h.died_at DESC, h.job_id DESC
    ON CONFLICT (queue, unique_key) DO NOTHING
    RETURNING job_id
), dead AS (
    DELETE FROM dblock_queue_dead d
    WHERE d.ctid = ANY (ARRAY(SELECT h.place FROM head h WHERE h.unique_key IS NULL OR h.job_id IN (SELECT a.job_id FROM alone a)))
    RETURNING d.job_id, d.queue, d.kind, d.priority, d.max_attempts, d.enqueued_at, d.unique_key, d.group_key, d.group_most, d.last_error, d.payload
), job AS (
    INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, enqueued_at, unique_key, group_key, group_most, last_error, payload)
    SELECT d.job_id, d.queue, d.kind, d.priority, d.max_attempts, d.enqueued_at, d.unique_key, d.group_key, d.group_most, d.last_error, d.payload FROM dead d
), later AS (
    INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority, group_key)
    SELECT statement_timestamp(), d.job_id, d.queue, d.priority, d.group_key FROM dead d WHERE d.group_key IS NOT NULL
), ready AS (
    INSERT INTO dblock_queue_ready (queue, priority, job_id)
    SELECT d.queue, d.priority, d.job_id FROM dead d WHERE d.group_key IS NULL
)
SELECT count(*) FROM dead;

-- name: DeleteDead :execrows
DELETE FROM dblock_queue_dead d WHERE d.job_id = sqlc.arg(job_id);

-- name: PurgeDead :execrows
DELETE FROM dblock_queue_dead d
WHERE d.ctid = ANY (ARRAY(
    SELECT x.ctid::tid AS place FROM dblock_queue_dead x
    WHERE x.queue = sqlc.arg(queue) AND x.died_at <= statement_timestamp() - sqlc.arg(age_us)::bigint::float8 * interval '1 microsecond'
    ORDER BY x.queue, x.died_at, x.job_id LIMIT sqlc.arg(most) FOR UPDATE SKIP LOCKED
));

-- Whether there are any of these, locked or not.
-- name: AnyDead :one
SELECT EXISTS (
    SELECT FROM dblock_queue_dead d
    WHERE d.queue = sqlc.arg(queue) AND d.died_at <= statement_timestamp() - sqlc.arg(age_us)::bigint::float8 * interval '1 microsecond'
) AS jobs;

-- A request to cancel a job of a claim. It returns whether the claim has the job. It waits for a
-- reschedule or a discard of the job, and these wait for it, so that they see the request: see
-- CancelsHeld.
-- name: RequestCancel :one
WITH held AS MATERIALIZED (
    SELECT c.member_id FROM dblock_queue_claim c
    WHERE c.claim_id = sqlc.arg(claim_id) AND c.member_id = sqlc.arg(member_id) AND sqlc.arg(job_id)::uuid = ANY (c.job_ids)
    FOR SHARE
), ask AS (
    INSERT INTO dblock_queue_cancel (member_id, job_id) SELECT h.member_id, sqlc.arg(job_id) FROM held h ON CONFLICT (member_id, job_id) DO NOTHING
)
SELECT count(*) > 0 AS held FROM held;

-- name: CancelsOf :many
SELECT c.job_id, EXISTS (SELECT 1 FROM dblock_queue_job j WHERE j.job_id = c.job_id) AS stands
FROM dblock_queue_cancel c
WHERE c.member_id = sqlc.arg(member_id) AND c.job_id > sqlc.arg(after)
ORDER BY c.member_id, c.job_id
LIMIT 1000;

-- name: DropCancels :exec
DELETE FROM dblock_queue_cancel c WHERE c.member_id = sqlc.arg(member_id) AND c.job_id = ANY (sqlc.arg(job_ids)::uuid[]);

-- Those whose jobs have ended, and whose worker has not dropped them.
-- name: PruneCancels :execrows
DELETE FROM dblock_queue_cancel c
WHERE c.asked_at < statement_timestamp() - interval '1 hour' AND NOT EXISTS (SELECT 1 FROM dblock_queue_job j WHERE j.job_id = c.job_id);
