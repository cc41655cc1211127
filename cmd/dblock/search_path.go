package main

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/db/pgdb"
)

// pinSearchPath makes a session look for names in pg_catalog and in the schema of dblock's tables only. On the role's own
// search_path other roles may be able to create objects, and an operator's role often has more rights than theirs.
// Behind a pooler nothing is set, as the setting would stay in a session that others use.
const pinSearchPath = `SELECT pg_catalog.set_config('search_path', pg_catalog.concat(pg_catalog.quote_ident(p.name), ', pg_temp'::text), false)
FROM (SELECT COALESCE(NULLIF($1::text, ''::text), (` + pgdb.FindSchema + `)) AS name) p
WHERE p.name IS NOT NULL AND pg_catalog.pg_backend_pid()::text = $2::text`

// pinned returns what a new connection does before its first statement.
func pinned(schemaName string) pgconn.AfterConnectFunc {
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		args := [][]byte{[]byte(schemaName), []byte(strconv.FormatUint(uint64(conn.PID()), 10))}
		return conn.ExecParams(ctx, pinSearchPath, args, nil, nil, nil).Read().Err
	}
}
