-- +goose Up
-- A semaphore that has no permits is made anew by the next request for one. The constraint copies the table, which has one row a
-- semaphore. Constraints of times, as on Postgres, would copy large tables and fail where a row is bad; a zero date is the only bad time.
DELETE FROM dblock_semaphore WHERE permits < 1;
ALTER TABLE dblock_semaphore ADD CONSTRAINT dblock_semaphore_positive CHECK (permits > 0);

-- +goose Down
ALTER TABLE dblock_semaphore DROP CONSTRAINT dblock_semaphore_positive;
