-- name: SchemaVersion :one
SELECT coalesce(max(v.version_id), 0)::bigint AS version
FROM dblock_schema_version v
WHERE v.is_applied;

-- untrusted is a table of dblock's whose owner could use this session's rights. The session is a
-- superuser's, and the owner can put triggers on the table. The owner is neither a superuser nor
-- the owner of the schema or of the database.
-- name: ServerVersion :one
SELECT pg_catalog.current_setting('server_version')::text AS version, pg_catalog.current_setting('server_encoding')::text AS encoding,
    pg_catalog.current_setting('client_encoding')::text AS client_encoding,
    COALESCE((
        SELECT pg_catalog.format('table %s belongs to role "%s"'::text, c.relname, r.rolname)
        FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_catalog.pg_roles r ON r.oid = c.relowner
        JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
        WHERE n.nspname = sqlc.arg(schema_name)::text::name AND pg_catalog.starts_with(c.relname::text, 'dblock_'::text)
          AND c.relkind IN ('r'::"char", 'p'::"char", 'v'::"char", 'm'::"char", 'f'::"char")
          AND pg_catalog.current_setting('is_superuser') = 'on'::text
          AND NOT r.rolsuper AND c.relowner <> n.nspowner AND c.relowner <> d.datdba
        ORDER BY c.relname
        LIMIT 1
    ), ''::text)::text AS untrusted;

-- stranger is a table of dblock's whose owner this session has no reason to trust. The owner is
-- none of its own roles, and has not the rights of the owner of the schema or of the database. It
-- has no right of its own to create tables in the schema, as the role that migrates has. A right of
-- PUBLIC is no right of its own.
-- name: ForeignOwner :one
SELECT COALESCE((
        SELECT pg_catalog.format('table %s belongs to role "%s"'::text, c.relname, pg_catalog.pg_get_userbyid(c.relowner))
        FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
        WHERE n.nspname = sqlc.arg(schema_name)::text::name AND pg_catalog.starts_with(c.relname::text, 'dblock_'::text)
          AND c.relkind IN ('r'::"char", 'p'::"char", 'v'::"char", 'm'::"char", 'f'::"char")
          AND NOT pg_catalog.pg_has_role(c.relowner, 'MEMBER'::text)
          AND NOT pg_catalog.pg_has_role(c.relowner, n.nspowner, 'MEMBER'::text)
          AND NOT pg_catalog.pg_has_role(c.relowner, d.datdba, 'MEMBER'::text)
          AND NOT EXISTS (
              SELECT FROM pg_catalog.aclexplode(n.nspacl) a
              WHERE a.privilege_type = 'CREATE'::text AND a.grantee <> 0::oid AND pg_catalog.pg_has_role(c.relowner, a.grantee, 'MEMBER'::text)
          )
        ORDER BY c.relname
        LIMIT 1
    ), ''::text)::text AS stranger,
    COALESCE((
        SELECT pg_catalog.has_schema_privilege(n.oid, 'CREATE'::text)
        FROM pg_catalog.pg_namespace n WHERE n.nspname = sqlc.arg(schema_name)::text::name
    ), true)::boolean AS may_create;

-- What decides whether a commit of this session survives a crash of the server.
-- name: Durability :one
SELECT pg_catalog.current_setting('fsync')::text AS fsync, pg_catalog.current_setting('synchronous_commit')::text AS synchronous_commit;

-- Has the commit of this transaction wait for the synchronous standbys, if there are any. A commit
-- whose wait was cancelled is visible, and may be on no standby. A later commit that is confirmed
-- confirms it as well. A commit waits only if its transaction has written to the log: hence the
-- message. It needs no right to a table and locks nothing. Logical decoding shows it.
-- name: ConfirmCommits :exec
SELECT pg_catalog.pg_logical_emit_message(true, 'dblock'::text, ''::text)
WHERE pg_catalog.current_setting('synchronous_standby_names') <> ''::text;

-- The session's search_path, and the first schema on it that has dblock's tables, or else the first
-- one that exists. The schema of temporary tables is none of them, though a session looks there
-- first for a table without a schema. Operators and types are qualified here, because the path may
-- find those of another schema first. varchar is a keyword.
-- name: FindSchema :one
SELECT COALESCE((
    SELECT n.nspname::varchar
    FROM pg_catalog.pg_namespace n
    LEFT JOIN pg_catalog.pg_class c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid
        AND c.relname OPERATOR(pg_catalog.=) 'dblock_schema_version'::pg_catalog.name
    WHERE n.nspname OPERATOR(pg_catalog.=) ANY (pg_catalog.current_schemas(false))
      AND n.nspname OPERATOR(pg_catalog.<>) 'pg_catalog'::pg_catalog.name
      AND n.oid OPERATOR(pg_catalog.<>) pg_catalog.pg_my_temp_schema()
    ORDER BY c.oid IS NULL, pg_catalog.array_position(pg_catalog.current_schemas(false), n.nspname)
    LIMIT 1
), ''::varchar)::varchar AS name, pg_catalog.current_setting('search_path')::varchar AS search_path;
