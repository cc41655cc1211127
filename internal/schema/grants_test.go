package schema_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/schema"
)

// The page shows the statements that the tests run, all of them and no others.
func TestGrantsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/grants.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for i, block := range strings.Split(string(page), "```") {
		if i%2 == 0 || !strings.HasPrefix(block, "sql\n") {
			continue
		}
		for line := range strings.Lines(strings.TrimPrefix(block, "sql\n")) {
			shown = append(shown, strings.TrimSuffix(strings.TrimSpace(line), ";"))
		}
	}
	want := slices.Concat(
		schema.PostgresMigrationGrants("app", "app_migrator"),
		schema.PostgresCreateSchemaGrants("app_database", "app_migrator"),
		schema.PostgresServiceGrants("app", "app_service"),
		schema.PostgresOperatorGrants("app", "app_operator"),
		schema.MySQLMigrationGrants("app", "app_migrator"),
		schema.MySQLServiceGrants("app", "app_service"),
		schema.MySQLOperatorGrants("app", "app_operator"),
	)
	if !slices.Equal(shown, want) {
		t.Errorf("the page shows\n%s\nwant\n%s", strings.Join(shown, "\n"), strings.Join(want, "\n"))
	}
}

func TestGrantsQuote(t *testing.T) {
	t.Parallel()
	got := schema.MySQLMigrationGrants("my_%`db", `o'b\c@10.0.%`)
	const want = "GRANT CREATE, ALTER, DROP, SELECT, INSERT, UPDATE, DELETE ON `my\\_\\%``db`.* TO 'o''b\\\\c'@'10.0.%'"
	if len(got) != 1 || got[0] != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := schema.PostgresServiceGrants(`a"b`, "r")[0]; got != `GRANT USAGE ON SCHEMA "a""b" TO "r"` {
		t.Errorf("got %s", got)
	}
}
