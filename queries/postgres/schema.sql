-- name: SchemaVersion :one
SELECT coalesce(max(v.version_id), 0)::bigint AS version
FROM dblock_schema_version v
WHERE v.is_applied;

-- name: ServerVersion :one
SELECT pg_catalog.current_setting('server_version')::text AS version;

-- What decides whether a commit of this session survives a crash of the server.
-- name: Durability :one
SELECT pg_catalog.current_setting('fsync')::text AS fsync, pg_catalog.current_setting('synchronous_commit')::text AS synchronous_commit;
