-- name: SchemaVersion :one
SELECT CAST(COALESCE(MAX(v.version_id), 0) AS SIGNED) AS version
FROM dblock_schema_version v
WHERE v.is_applied;

-- name: ServerVersion :one
SELECT CONCAT(VERSION(), '') AS version;
