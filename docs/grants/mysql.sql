-- Grants of dblock on MySQL and MariaDB.
-- The database is `app`, the accounts are 'app_migrator', 'app_service' and 'app_operator'.

-- migrate: before `dblock migrate up`. Tables have no owner, so it is for the whole database. In
-- this statement alone _ and % in the name of the database are wildcards and need a backslash:
-- `my\_app`.
GRANT CREATE, ALTER, DROP, SELECT, INSERT, UPDATE, DELETE ON `app`.* TO 'app_migrator'@'%';

-- service: after the first `dblock migrate up`, because a grant on a table needs the table.
GRANT SELECT, INSERT, UPDATE ON `app`.dblock_stock TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE ON `app`.dblock_reservation TO 'app_service'@'%';
GRANT SELECT, INSERT ON `app`.dblock_adjustment TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `app`.dblock_member TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `app`.dblock_lease TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `app`.dblock_lease_waiter TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE ON `app`.dblock_fence TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `app`.dblock_reader TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE ON `app`.dblock_semaphore TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE ON `app`.dblock_permit TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `app`.dblock_ticket TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `app`.dblock_session_key TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE ON `app`.dblock_quota TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `app`.dblock_queue TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `app`.dblock_queue_job TO 'app_service'@'%';
GRANT SELECT, INSERT, DELETE ON `app`.dblock_queue_ready TO 'app_service'@'%';
GRANT SELECT, INSERT, DELETE ON `app`.dblock_queue_scheduled TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `app`.dblock_queue_claim TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `app`.dblock_queue_cancel TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `app`.dblock_queue_key TO 'app_service'@'%';
GRANT SELECT, INSERT, DELETE ON `app`.dblock_queue_blocked TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `app`.dblock_queue_unique TO 'app_service'@'%';
GRANT SELECT, INSERT, DELETE ON `app`.dblock_queue_dead TO 'app_service'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `app`.dblock_queue_history TO 'app_service'@'%';
GRANT SELECT ON `app`.dblock_schema_version TO 'app_service'@'%';

-- operator: at the same time.
GRANT SELECT ON `app`.dblock_stock TO 'app_operator'@'%';
GRANT SELECT ON `app`.dblock_reservation TO 'app_operator'@'%';
GRANT SELECT ON `app`.dblock_adjustment TO 'app_operator'@'%';
GRANT SELECT ON `app`.dblock_member TO 'app_operator'@'%';
GRANT SELECT, UPDATE ON `app`.dblock_lease TO 'app_operator'@'%';
GRANT SELECT ON `app`.dblock_lease_waiter TO 'app_operator'@'%';
GRANT SELECT, DELETE ON `app`.dblock_reader TO 'app_operator'@'%';
GRANT SELECT, INSERT, UPDATE ON `app`.dblock_semaphore TO 'app_operator'@'%';
GRANT SELECT, INSERT, UPDATE ON `app`.dblock_permit TO 'app_operator'@'%';
GRANT SELECT ON `app`.dblock_ticket TO 'app_operator'@'%';
GRANT SELECT ON `app`.dblock_session_key TO 'app_operator'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON `app`.dblock_queue TO 'app_operator'@'%';
GRANT SELECT, INSERT, DELETE ON `app`.dblock_queue_job TO 'app_operator'@'%';
GRANT SELECT, INSERT, DELETE ON `app`.dblock_queue_ready TO 'app_operator'@'%';
GRANT SELECT, INSERT, DELETE ON `app`.dblock_queue_scheduled TO 'app_operator'@'%';
GRANT SELECT, INSERT, DELETE ON `app`.dblock_queue_claim TO 'app_operator'@'%';
GRANT SELECT, INSERT, UPDATE ON `app`.dblock_queue_cancel TO 'app_operator'@'%';
GRANT SELECT, UPDATE, DELETE ON `app`.dblock_queue_key TO 'app_operator'@'%';
GRANT SELECT, DELETE ON `app`.dblock_queue_blocked TO 'app_operator'@'%';
GRANT SELECT, INSERT, DELETE ON `app`.dblock_queue_unique TO 'app_operator'@'%';
GRANT SELECT, INSERT, DELETE ON `app`.dblock_queue_dead TO 'app_operator'@'%';
GRANT SELECT, INSERT, UPDATE ON `app`.dblock_queue_history TO 'app_operator'@'%';
GRANT SELECT ON `app`.dblock_schema_version TO 'app_operator'@'%';
