package postgres_test

import (
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestStatementsNameTheirSchema: a session has a temporary table of the name of each of dblock's
// tables. Every statement names the schema of all of its tables, and finds none of the temporary
// ones. As they are generated, statements do.
func TestStatementsNameTheirSchema(t *testing.T) {
	t.Parallel()
	pool := testdb.MigratedPostgres(t)
	session, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer session.Release()
	for _, table := range append(schema.Tables(), schema.VersionTable) {
		if _, err := session.Exec(t.Context(), "CREATE TEMPORARY TABLE "+table+" (shadow int)"); err != nil {
			t.Fatal(err)
		}
	}
	home, err := postgres.RequireSchema(t.Context(), session, "")
	if err != nil || home.Table("")[0] != "public" {
		t.Fatalf("the tables are in %q, %v", home.Table(""), err)
	}
	shadowed := 0
	for name, statement := range generatedStatements(t) {
		if err := explain(t.Context(), session.Conn(), home.SQL(statement)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if explain(t.Context(), session.Conn(), statement) != nil {
			shadowed++
		} else if strings.Contains(statement, "FROM dblock_") {
			t.Errorf("control: %s finds no temporary table without a schema", name)
		}
	}
	if shadowed == 0 {
		t.Error("control: the temporary tables shadow nothing")
	}
}
