package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/schema"
)

// pin makes new sessions look for names in pg_catalog and in the schema of dblock's tables only. On
// the role's own search_path other roles may be able to create objects, and an operator's role
// often has more rights than theirs. It comes before the driver's own statements, such as those of
// target_session_attrs.
func pin(config *pgconn.Config, schemaName string) {
	validate := config.ValidateConnect
	config.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := pinSession(ctx, conn, schemaName); err != nil || validate == nil {
			return err
		}
		return validate(ctx, conn)
	}
}

// pinSession reads the search_path by a statement that is safe along any, and then sets it. Behind
// a pooler nothing is set, as the setting would stay in a session that others use. A search_path
// that would have to be set is refused there.
func pinSession(ctx context.Context, conn *pgconn.PgConn, schemaName string) error {
	results, err := conn.Exec(ctx, "SELECT pg_catalog.pg_backend_pid(); "+pgdb.FindSchema).ReadAll()
	if err != nil {
		return err
	}
	if len(results) != 2 || len(results[0].Rows) != 1 || len(results[1].Rows) != 1 {
		return fmt.Errorf("the server answers a question about its search_path with something else: is it Postgres?")
	}
	backend, found, path := string(results[0].Rows[0][0]), string(results[1].Rows[0][0]), string(results[1].Rows[0][1])
	if backend != strconv.FormatUint(uint64(conn.PID()), 10) {
		return postgres.CheckSearchPath(path)
	}
	set := "SET search_path = pg_temp"
	if name := cmp.Or(schemaName, found); name != "" {
		set = "SET search_path = " + schema.QuotePostgres(name) + ", pg_temp"
	}
	_, err = conn.Exec(ctx, set).ReadAll()
	return err
}
