-- +goose Up
-- retry: the job failed and is to be tried again. The index lists and counts the jobs of one queue that wait for their time.
ALTER TABLE dblock_queue_scheduled ADD COLUMN retry BOOLEAN NOT NULL DEFAULT false;
ALTER TABLE dblock_queue_scheduled ADD INDEX dblock_queue_scheduled_queue (queue, retry, run_at, job_id);

-- reason: why a job was cancelled or given up; null: it was finished, or no reason is known.
ALTER TABLE dblock_queue_history ADD COLUMN reason MEDIUMBLOB;

-- begun: the attempt that began last, where beginnings are recorded; null: they are not.
ALTER TABLE dblock_queue_job ADD COLUMN begun SMALLINT;

-- +goose Down
ALTER TABLE dblock_queue_job DROP COLUMN begun;
ALTER TABLE dblock_queue_history DROP COLUMN reason;
ALTER TABLE dblock_queue_scheduled DROP KEY dblock_queue_scheduled_queue;
ALTER TABLE dblock_queue_scheduled DROP COLUMN retry;
