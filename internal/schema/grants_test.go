package schema_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/schema"
)

// TestGrantsFiles compares the files of docs/grants with the statements that the tests run: all of
// them and no others.
func TestGrantsFiles(t *testing.T) {
	t.Parallel()
	for file, want := range map[string][]string{
		"../../docs/grants/postgres.sql": slices.Concat(
			schema.PostgresMigrationGrants("app", "app_migrator"),
			schema.PostgresCreateSchemaGrants("app_database", "app_migrator"),
			schema.PostgresServiceGrants("app", "app_service"),
			schema.PostgresOperatorGrants("app", "app_operator"),
		),
		"../../docs/grants/mysql.sql": slices.Concat(
			schema.MySQLMigrationGrants("app", "app_migrator"),
			schema.MySQLServiceGrants("app", "app_service"),
			schema.MySQLOperatorGrants("app", "app_operator"),
		),
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var shown []string
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
				shown = append(shown, strings.TrimSuffix(line, ";"))
			}
		}
		if !slices.Equal(shown, want) {
			t.Errorf("%s has\n%s\nwant\n%s", file, strings.Join(shown, "\n"), strings.Join(want, "\n"))
		}
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
