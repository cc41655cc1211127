package postgres_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

// TestEachGrantIsNeeded: a role with the documented grants may run every statement. Without any one
// of them at least one statement is refused. The server checks rights when it plans.
func TestEachGrantIsNeeded(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.Postgres(t), t.Context()
	if _, err := migrations.Up(ctx, pool, migrations.Options{Schema: "app"}); err != nil {
		t.Fatal(err)
	}
	role := pool.Config().ConnConfig.Database + "_service"
	conn := service(t, pool, role, schema.PostgresServiceGrants("app", role)...)
	statements := generatedStatements(t)
	for name, statement := range statements {
		if err := explain(ctx, conn, statement); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, table := range append(schema.Tables(), schema.VersionTable) {
		whole := regexp.MustCompile(`\b` + table + `\b`)
		for _, right := range schema.Rights(schema.Postgres, table) {
			change := func(text string) {
				t.Helper()
				if _, err := pool.Exec(ctx, fmt.Sprintf(text, right, "app."+table, role)); err != nil {
					t.Fatal(err)
				}
			}
			change("REVOKE %s ON %s FROM %s")
			needed := false
			for _, statement := range statements {
				if whole.MatchString(statement) {
					err := explain(ctx, conn, statement)
					needed = needed || err != nil && strings.Contains(err.Error(), "permission denied")
				}
				if needed {
					break
				}
			}
			if !needed {
				t.Errorf("no statement needs %s on %s", right, table)
			}
			change("GRANT %s ON %s TO %s")
		}
	}
}
