package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/doctor"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestNothingPlantedRuns: another role has planted operators and functions in the schema public. A
// superuser runs every command, and a service uses the packages. None of the planted functions
// runs: each would fail.
func TestNothingPlantedRuns(t *testing.T) {
	t.Parallel()
	if !slices.Contains(testdb.Engines(), devdb.Postgres) {
		return
	}
	url := testdb.PostgresURL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	operators, functions := testdb.Plant(t, conn, goText(t))
	t.Logf("planted %d operators and %d functions", operators, functions)
	if _, err := conn.Exec(t.Context(), "SELECT clock_timestamp() + 1::bigint * interval '1 microsecond'"); err == nil || !strings.Contains(err.Error(), "planted") {
		t.Fatalf("control: %v, want the planted operator to run", err)
	}
	t.Run("commands", func(t *testing.T) { commandsRunNothingPlanted(t, url) })
	if _, err := conn.Exec(t.Context(), "DROP SCHEMA IF EXISTS app CASCADE"); err != nil {
		t.Fatal(err)
	}
	invoke(t, "", "migrate", "up", "--schema=app", "--database="+url).want(t, 0, "")
	t.Run("services", func(t *testing.T) { servicesRunNothingPlanted(t, url) })
}

func commandsRunNothingPlanted(t *testing.T, url string) {
	const none = "0198c0de-0000-7000-8000-000000000000" // there is no such job
	database := "--database=" + url
	for _, place := range []string{"--schema=app", ""} {
		for _, command := range []string{
			"migrate up", "migrate status", "doctor", "locks", "locks --session", "lock k --ttl=5m -- true",
			"lock k --ttl=5m --fair -- true", "lock k --ttl=5m --shared -- true", "lock s --ttl=5m --permits=1 --limit=2 -- true",
			"permits s 3", "queue stats", "queue list", "queue pause q", "queue resume q",
			"queue retry --all", "queue purge --older=1h", "unlock none --token=1", "queue show " + none, "queue cancel " + none, "queue discard " + none,
			"migrate down --all --yes",
		} {
			args := strings.Fields(command)
			at := slices.Index(args, "--")
			if at < 0 {
				at = len(args)
			}
			args = slices.Insert(args, at, database)
			if place != "" {
				args = slices.Insert(args, at, place)
			}
			fails := strings.HasPrefix(command, "doctor") || strings.Contains(command, "none") || strings.HasSuffix(command, none)
			if got := invoke(t, "", args...); got.code != 0 && !fails || strings.Contains(got.err+got.out, "planted (SQLSTATE") {
				t.Errorf("%s %s: exit %d, out %q, err %q", command, place, got.code, got.out, got.err)
			}
		}
	}
}

// goText is the text of the module's programs, with all of their SQL.
func goText(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "mysql") {
			return err
		}
		file, err := os.ReadFile(path)
		text.Write(file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestDoctorWarnsOfSharedSchemas(t *testing.T) {
	t.Parallel()
	if !slices.Contains(testdb.Engines(), devdb.Postgres) {
		return
	}
	database := "--database=" + testdb.PostgresURL(t)
	invoke(t, "", "migrate", "up", "--schema=app", database).want(t, 0, "")
	wantFinding(t, diagnose(t, "--schema=app", database), "search_path", doctor.OK, "only owners")
	change(t, database, "GRANT CREATE ON SCHEMA public TO PUBLIC")
	wantFinding(t, diagnose(t, "--schema=app", database), "search_path", doctor.Warning, `REVOKE CREATE ON SCHEMA "public" FROM PUBLIC`)
	wantFinding(t, diagnose(t, database), "search_path", doctor.Warning, `PUBLIC may create objects in the schema "public"`)
	odd := testdb.PostgresURL(t)
	change(t, odd, `CREATE SCHEMA "a, ""b"`, `GRANT CREATE ON SCHEMA "a, ""b" TO PUBLIC`,
		`DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = "a, ""b", public', current_database()); END$$`)
	wantFinding(t, diagnose(t, "--database="+odd), "search_path", doctor.Warning, `the schema "a, \"b"`)
}
