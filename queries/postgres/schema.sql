-- name: SchemaVersion :one
SELECT coalesce(max(v.version_id), 0)::bigint AS version
FROM dblock_schema_version v
WHERE v.is_applied;

-- name: ServerVersion :one
SELECT current_setting('server_version')::text AS version;
