-- +goose Up
-- Times are finite and counts are positive. NOT VALID: no table is read while it is locked. Bad rows of tables whose rows are updated
-- are mended before, because each update checks its row: what lasts for ever lasts for 100 years, what ended long ago ended in 1970,
-- and a job was enqueued now.
UPDATE dblock_lease SET held_until = LEAST(GREATEST(held_until, 'epoch'), clock_timestamp() + interval '100 years')
WHERE NOT pg_catalog.isfinite(held_until);
UPDATE dblock_reader SET held_until = LEAST(GREATEST(held_until, 'epoch'), clock_timestamp() + interval '100 years')
WHERE NOT pg_catalog.isfinite(held_until);
UPDATE dblock_permit SET held_until = LEAST(GREATEST(held_until, 'epoch'), clock_timestamp() + interval '100 years')
WHERE NOT pg_catalog.isfinite(held_until);
UPDATE dblock_reservation SET expires_at = LEAST(GREATEST(expires_at, 'epoch'), clock_timestamp() + interval '100 years')
WHERE state = 1 AND NOT pg_catalog.isfinite(expires_at);
UPDATE dblock_queue_job
SET enqueued_at = CASE WHEN pg_catalog.isfinite(enqueued_at) THEN enqueued_at ELSE clock_timestamp() END,
    group_most = CASE WHEN group_most < 1 THEN 1 ELSE group_most END
WHERE NOT pg_catalog.isfinite(enqueued_at) OR group_most < 1;
UPDATE dblock_queue_dead
SET enqueued_at = CASE WHEN pg_catalog.isfinite(enqueued_at) THEN enqueued_at ELSE clock_timestamp() END,
    group_most = CASE WHEN group_most < 1 THEN 1 ELSE group_most END
WHERE NOT pg_catalog.isfinite(enqueued_at) OR group_most < 1;

-- A semaphore that has no permits is made anew by the next request for one.
DELETE FROM dblock_semaphore WHERE permits < 1;

ALTER TABLE dblock_lease ADD CONSTRAINT dblock_lease_finite CHECK (pg_catalog.isfinite(held_until)) NOT VALID;
ALTER TABLE dblock_reader ADD CONSTRAINT dblock_reader_finite CHECK (pg_catalog.isfinite(held_until)) NOT VALID;
ALTER TABLE dblock_permit ADD CONSTRAINT dblock_permit_finite CHECK (pg_catalog.isfinite(held_until)) NOT VALID;
ALTER TABLE dblock_semaphore ADD CONSTRAINT dblock_semaphore_positive CHECK (permits > 0) NOT VALID;
ALTER TABLE dblock_reservation ADD CONSTRAINT dblock_reservation_finite CHECK (state <> 1 OR pg_catalog.isfinite(expires_at)) NOT VALID;
ALTER TABLE dblock_queue_job ADD CONSTRAINT dblock_queue_job_bounds
    CHECK (pg_catalog.isfinite(enqueued_at) AND group_most > 0) NOT VALID;
ALTER TABLE dblock_queue_ready ADD CONSTRAINT dblock_queue_ready_finite CHECK (pg_catalog.isfinite(ready_at)) NOT VALID;
ALTER TABLE dblock_queue_scheduled ADD CONSTRAINT dblock_queue_scheduled_finite CHECK (pg_catalog.isfinite(run_at)) NOT VALID;
ALTER TABLE dblock_queue_dead ADD CONSTRAINT dblock_queue_dead_bounds
    CHECK (pg_catalog.isfinite(enqueued_at) AND pg_catalog.isfinite(died_at) AND group_most > 0) NOT VALID;

-- +goose Down
ALTER TABLE dblock_queue_dead DROP CONSTRAINT dblock_queue_dead_bounds;
ALTER TABLE dblock_queue_scheduled DROP CONSTRAINT dblock_queue_scheduled_finite;
ALTER TABLE dblock_queue_ready DROP CONSTRAINT dblock_queue_ready_finite;
ALTER TABLE dblock_queue_job DROP CONSTRAINT dblock_queue_job_bounds;
ALTER TABLE dblock_reservation DROP CONSTRAINT dblock_reservation_finite;
ALTER TABLE dblock_semaphore DROP CONSTRAINT dblock_semaphore_positive;
ALTER TABLE dblock_permit DROP CONSTRAINT dblock_permit_finite;
ALTER TABLE dblock_reader DROP CONSTRAINT dblock_reader_finite;
ALTER TABLE dblock_lease DROP CONSTRAINT dblock_lease_finite;
