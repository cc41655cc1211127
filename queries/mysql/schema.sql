-- name: SchemaVersion :one
SELECT CAST(COALESCE(MAX(v.version_id), 0) AS SIGNED) AS version
FROM dblock_schema_version v
WHERE v.is_applied
LIMIT 1;

-- name: ServerVersion :one
SELECT CONCAT(VERSION()) AS version LIMIT 1;

-- What decides whether a commit survives a crash of the server.
-- name: Durability :one
SELECT CAST(@@innodb_flush_log_at_trx_commit AS SIGNED) AS flush_log, CAST(@@log_bin AS SIGNED) AS log_bin,
       CAST(@@sync_binlog AS SIGNED) AS sync_binlog
LIMIT 1;

-- By how many seconds the clock of the statement differs from that of the machine: more than a
-- moment if the session has a timestamp.
-- name: ClockStandsFor :one
SELECT CAST(ABS(TIMESTAMPDIFF(SECOND, NOW(6), SYSDATE(6))) AS SIGNED) AS seconds LIMIT 1;
