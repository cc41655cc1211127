-- name: SchemaVersion :one
SELECT coalesce(max(v.version_id), 0)::bigint AS version
FROM dblock_schema_version v
WHERE v.is_applied;

-- name: ServerVersion :one
SELECT pg_catalog.current_setting('server_version')::text AS version, pg_catalog.current_setting('server_encoding')::text AS encoding,
    pg_catalog.current_setting('client_encoding')::text AS client_encoding;

-- What decides whether a commit of this session survives a crash of the server.
-- name: Durability :one
SELECT pg_catalog.current_setting('fsync')::text AS fsync, pg_catalog.current_setting('synchronous_commit')::text AS synchronous_commit;

-- The first schema on the session's search_path that has dblock's tables, or else the first one that exists. The schema of
-- temporary tables is none of them, though a session looks there first for a table without a schema.
-- name: FindSchema :one
SELECT n.nspname::text AS name
FROM pg_catalog.pg_namespace n
LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = 'dblock_schema_version'::name
WHERE n.nspname = ANY (pg_catalog.current_schemas(false)) AND n.oid <> pg_catalog.pg_my_temp_schema()
ORDER BY c.oid IS NULL, pg_catalog.array_position(pg_catalog.current_schemas(false), n.nspname)
LIMIT 1;
