package postgres_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

// TestStatementsNameNothingPlanted: a role that may create objects in a schema on the search_path
// plants operators and functions there. No statement of dblock names one. The control, a statement
// whose types have no exact match in pg_catalog, does.
func TestStatementsNameNothingPlanted(t *testing.T) {
	t.Parallel()
	statements := generatedStatements(t)
	conn := planted(t, statements)
	for _, name := range slices.Sorted(maps.Keys(statements)) {
		if err := explain(t.Context(), conn, statements[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, control := range map[string]string{
		"operator": "SELECT clock_timestamp() + $1::bigint * interval '1 microsecond'",
		"function": "SELECT unnest($1::text[])",
	} {
		if err := explain(t.Context(), conn, control); err == nil || !strings.Contains(err.Error(), "planted") && !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("control %s: %v, want an error that a planted object causes", name, err)
		}
	}
}

// keptPlanted counts what depends on an operator or a function outside pg_catalog.
const keptPlanted = `SELECT count(*) FROM pg_catalog.pg_depend d
	LEFT JOIN pg_catalog.pg_operator o ON d.refclassid = 'pg_catalog.pg_operator'::regclass::oid AND o.oid = d.refobjid
	LEFT JOIN pg_catalog.pg_proc p ON d.refclassid = 'pg_catalog.pg_proc'::regclass::oid AND p.oid = d.refobjid
	WHERE d.classid NOT IN ('pg_catalog.pg_operator'::regclass::oid, 'pg_catalog.pg_proc'::regclass::oid)
	  AND COALESCE(o.oprnamespace, p.pronamespace) = 'public'::regnamespace::oid`

// planted returns a session of a role that has no privilege on what was planted, in a migrated
// database.
func planted(t *testing.T, statements map[string]string) *pgx.Conn {
	t.Helper()
	pool := testdb.Postgres(t)
	owner, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Release()
	role := owner.Conn().Config().Database + "_service"
	operators, functions := testdb.Plant(t, owner.Conn(), strings.Join(slices.Collect(maps.Values(statements)), "\n"))
	t.Logf("%d statements; planted %d operators and %d functions", len(statements), operators, functions)
	if _, err := migrations.Up(t.Context(), pool, migrations.Options{Schema: "app"}); err != nil {
		t.Fatal(err)
	}
	var kept int
	if err := pool.QueryRow(t.Context(), keptPlanted).Scan(&kept); err != nil || kept != 0 {
		t.Errorf("constraints, indexes and defaults of dblock's tables name %d planted objects, %v", kept, err)
	}
	return service(t, pool, role, "GRANT USAGE ON SCHEMA app, public TO "+role,
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA app TO "+role, "GRANT USAGE ON ALL SEQUENCES IN SCHEMA app TO "+role)
}

// service makes a role with some grants, and returns a session of it.
func service(t *testing.T, pool *pgxpool.Pool, role string, grants ...string) *pgx.Conn {
	t.Helper()
	for _, statement := range append([]string{"CREATE ROLE " + role + " LOGIN PASSWORD 'service'"}, grants...) {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, statement := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
			if _, err := pool.Exec(context.WithoutCancel(t.Context()), statement); err != nil {
				t.Error(err)
			}
		}
	})
	config := pool.Config().ConnConfig.Copy()
	config.User, config.Password = role, "service"
	config.RuntimeParams["search_path"] = "app, public"
	config.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// explain plans a statement, which resolves and checks all that it names, and does not run it.
func explain(ctx context.Context, conn *pgx.Conn, statement string) error {
	prepared, err := conn.Prepare(ctx, statement, statement)
	if err != nil {
		return err
	}
	if len(prepared.ParamOIDs) == 0 {
		_, err := conn.Exec(ctx, "EXPLAIN "+statement)
		return err
	}
	if _, err := conn.Exec(ctx, "DEALLOCATE ALL; PREPARE p AS "+statement, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	nulls := strings.TrimSuffix(strings.Repeat("NULL, ", len(prepared.ParamOIDs)), ", ")
	_, err = conn.Exec(ctx, fmt.Sprintf("EXPLAIN EXECUTE p(%s)", nulls), pgx.QueryExecModeSimpleProtocol)
	return err
}

// generatedStatements are those of db/pgdb, by name.
func generatedStatements(t *testing.T) map[string]string {
	t.Helper()
	dir := filepath.Join("..", "..", "db", "pgdb")
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	statements := map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file.Name()), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, is := n.(*ast.ValueSpec); is && len(spec.Values) == 1 {
				if literal, is := spec.Values[0].(*ast.BasicLit); is && strings.HasPrefix(literal.Value, "`-- name: ") {
					text, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					statements[spec.Names[0].Name] = text
				}
			}
			return true
		})
	}
	return statements
}
