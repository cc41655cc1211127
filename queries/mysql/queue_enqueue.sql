-- Jobs come first: what names them is never seen without them.

-- name: EnqueueJobs :exec
INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, payload)
VALUES /*dblock:rows*/(sqlc.arg(job_id), sqlc.arg(queue), sqlc.arg(kind), sqlc.arg(priority), sqlc.arg(max_attempts), sqlc.arg(payload))/*dblock:end*/;

-- name: ReadyJobs :exec
INSERT INTO dblock_queue_ready (queue, priority, job_id)
VALUES /*dblock:rows*/(sqlc.arg(queue), sqlc.arg(priority), sqlc.arg(job_id))/*dblock:end*/;

-- name: ScheduleJobs :exec
INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority)
VALUES /*dblock:rows*/(TIMESTAMPADD(MICROSECOND, CAST(sqlc.arg(delay_us) AS SIGNED), +UTC_TIMESTAMP(6)), sqlc.arg(job_id), sqlc.arg(queue), sqlc.arg(priority))/*dblock:end*/;
