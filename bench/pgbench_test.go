package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

// hasPgbench tells whether both Postgres and pgbench are there to test with.
func hasPgbench(t *testing.T) bool {
	t.Helper()
	if !hasPostgres() {
		return false
	}
	if _, err := findPgbench(testdb.Server(t, devdb.Postgres).Source); err != nil {
		t.Log(err)
		return false
	}
	return true
}

// openPgbenchOn writes the script into a file, and opens it on a database of the test's own.
func openPgbenchOn(t *testing.T, script, setup string, clients int) (*Env, Workload) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "my script.sql")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	env := &Env{
		Kind: devdb.Postgres, Server: testdb.Server(t, devdb.Postgres), DSN: testdb.PostgresURL(t),
		Clients: clients, Conns: clients, Seed: 7, Dir: t.TempDir(),
	}
	w, err := PgbenchScenario(file, setup, nil).Open(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(env.Dir); len(left) > 0 || err != nil {
			t.Errorf("it left files: %v, %v", left, err)
		}
	})
	return env, w
}

func runPgbench(ctx context.Context, t *testing.T, w Workload, d time.Duration) (Sample, error) {
	t.Helper()
	round, err := w.Round(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	return round.Run(ctx, d)
}

func TestPgbenchIsMeasured(t *testing.T) {
	t.Parallel()
	if !hasPgbench(t) {
		return
	}
	env, w := openPgbenchOn(t, "INSERT INTO done VALUES (:client_id)", "CREATE TABLE done (client int)", 3)
	s, err := runPgbench(t.Context(), t, w, 1500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	r := &sqlRun{t: t, env: env}
	r.want("SELECT count(*) FROM done", s.OK)
	r.want("SELECT count(DISTINCT client) FROM done", 3)
	if s.Elapsed > 30*time.Second || s.perSecond() <= 0 || len(s.Failed) > 0 {
		t.Errorf("got %+v", s)
	}
	l := s.Latency
	if l.P50 <= 0 || l.P50 > l.P95 || l.P95 > l.P99 || l.P99 > l.Max || l.Mean <= 0 || l.Mean > l.Max || l.Stddev <= 0 {
		t.Errorf("got %+v", l)
	}
}

func TestPgbenchCountsFailures(t *testing.T) {
	t.Parallel()
	if !hasPgbench(t) {
		return
	}
	env, w := openPgbenchOn(t, `BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT n FROM t;
UPDATE t SET n = n + 1;
COMMIT;
`, "CREATE TABLE t (n bigint); INSERT INTO t VALUES (0);", 4)
	s, err := runPgbench(t.Context(), t, w, time.Second)
	if !w.(*pgbench).detailed {
		return // up to version 14, it does not go on after one
	}
	if err != nil || s.Failed["serialization"] == 0 {
		t.Errorf("got %+v, %v", s, err)
	}
	(&sqlRun{t: t, env: env}).want("SELECT n FROM t", s.OK)
}

func TestPgbenchSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	if !hasPgbench(t) {
		return
	}
	for script, want := range map[string]string{
		"SELECT 1;\n\\set a rnd(1)\n": `my script.sql:2: unexpected function name (rnd) in command "set"`,
		"SELECT * FROM missing;\n":    `relation "missing" does not exist`,
	} {
		_, w := openPgbenchOn(t, script, "", 2)
		if _, err := runPgbench(t.Context(), t, w, time.Second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", script, err, want)
		}
	}
	env := &Env{Kind: devdb.Postgres, DSN: testdb.PostgresURL(t)}
	if _, err := PgbenchScenario(filepath.Join(t.TempDir(), "missing"), "", nil).Open(t.Context(), env); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestPgbenchIsLookedFor(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	places := pgbenchPlaces
	t.Cleanup(func() { pgbenchPlaces = places })
	pgbenchPlaces = []string{filepath.Join(dir, "postgresql-*")}
	if _, err := findPgbench("DBLOCK_POSTGRES_URL"); !errors.Is(err, errNoPgbench) {
		t.Errorf("got %v", err)
	}
	// From the place that is looked at last, to the one before all.
	for _, sub := range []string{"", "postgresql-9", "postgresql-17", "server"} {
		path := filepath.Join(dir, sub, "pgbench")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if got, err := findPgbench(filepath.Join(dir, "server")); got != path || err != nil {
			t.Errorf("got %s, %v, want %s", got, err, path)
		}
	}
}

func TestReportsOfPgbench(t *testing.T) {
	t.Parallel()
	const (
		v13 = "number of transactions actually processed: 200\nlatency average = 1.0 ms\n" +
			"tps = 90.0 (including connections establishing)\ntps = 100.0 (excluding connections establishing)\n"
		v15 = "number of transactions actually processed: 50\nnumber of failed transactions: 3 (5.7%)\n" +
			"number of serialization failures: 0 (0.0%)\nnumber of deadlock failures: 3 (5.7%)\n" +
			"initial connection time = 5 ms\ntps = 100.0 (without initial connection time)\n"
	)
	for report, want := range map[string]Sample{
		v13: {OK: 200, Failed: map[string]int64{}, Elapsed: 2 * time.Second},
		v15: {OK: 50, Failed: map[string]int64{"deadlock": 3}, Elapsed: time.Second / 2},
	} {
		got, err := readReport(report)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v, want -, got +:\n%s", err, diff)
		}
	}
	for report, want := range map[string]error{
		"": errNoNumber,
		"number of transactions actually processed: 0\n":                       errNothingDone,
		"number of transactions actually processed: 5\n":                       errNoNumber,
		strings.ReplaceAll(v15, "tps = 100.0", "tps = 0.0"):                    errNoNumber,
		strings.ReplaceAll(v15, "(without initial connection time)", "(else)"): errNoNumber,
	} {
		if _, err := readReport(report); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", report, err, want)
		}
	}
}

func TestLogsOfPgbench(t *testing.T) {
	t.Parallel()
	prefix := filepath.Join(t.TempDir(), "log")
	if _, err := readLogs(prefix); !errors.Is(err, errNoLog) {
		t.Errorf("got %v", err)
	}
	var one, two bytes.Buffer
	for us := 1; us <= 100; us++ { // 1 to 200 ms
		fmt.Fprintf(&one, "0 %d %d 0 1700000000 5\n", us, us*1000)
		fmt.Fprintf(&two, "1 %d %d 0 1700000000 5\n", us, (us+100)*1000)
	}
	two.WriteString("1 101 failed 0 1700000000 5\n1 102 deadlock 0 1700000000 6\n")
	for name, text := range map[string][]byte{".12": one.Bytes(), ".12.1": two.Bytes()} {
		if err := os.WriteFile(prefix+name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readLogs(prefix)
	want := Latency{P50: 100, P95: 190, P99: 198, Max: 200, Mean: 100.5, Stddev: got.Stddev}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || got.Stddev < 57.73 || got.Stddev > 57.74 {
		t.Errorf("%v, want -, got +:\n%s", err, diff)
	}
	for _, text := range []string{"1 2\n", "1 2 what 0 1 2\n"} {
		if err := os.WriteFile(prefix+".12", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readLogs(prefix); !errors.Is(err, errUnreadable) {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// TestExpressionsAreThoseOfPgbench has both evaluate the same, and write it down as text.
func TestExpressionsAreThoseOfPgbench(t *testing.T) {
	t.Parallel()
	if !hasPgbench(t) {
		return
	}
	const setup = "CREATE TABLE done (n int PRIMARY KEY, x text);"
	var script strings.Builder
	for n, expr := range []string{
		"1 + 2 * 3", "(1 + 2) * 3", "10 - 2 - 3", "100 / 10 / 5", "2 * -3", "- - 4", "-+4", "7 / 2", "-7 / 2", "7 % 3",
		"-7 % 3", "7 % -3", "7.6 % 3", "5 / -1", "5 % -1", "7 / 2.0", "1.0 / 3", "1 / 0.0", "-1 / 0.0", "0.0 / 0.0", "2 + 1.0", ".5 + 1.",
		"1e3", "1.5E-2", "1e20", "123456789.123456789", "1e15", "1e16", "0.0001", "0.00001", "-0.0", "9223372036854775807",
		"-9223372036854775808", "-9223372036854775808 % -1", "3037000499 * 3037000499", "abs(-3)", "abs(-3.5)", "ABS(3)",
		"greatest(1, 3, 2)", "greatest(1, 2.5)", "greatest(3, 2.5)", "least(4)", "least(4, 2, 8, 3, 5)", "least(4, 2.0)",
		"int(2.5)", "int(3.5)", "int(-2.7)", "double(3) / 2", "mod(7, 3)", "pi()", "sqrt(2)", "ln(exp(2))", "power(2, 10)",
		"pow(2, 0.5)", ":scale * 5", ":client_id", "random(5, 5)", "random(4.6, 5.2)", "1 + \\\n 2",
	} {
		fmt.Fprintf(&script, "\\set x %s\nINSERT INTO done VALUES (%d, :x) ON CONFLICT DO NOTHING;\n", expr, n)
	}
	theirs, w := openPgbenchOn(t, script.String(), setup, 1)
	if _, err := runPgbench(t.Context(), t, w, time.Second); err != nil {
		t.Fatal(err)
	}
	ours := openScript(t, devdb.Postgres, script.String(), setup, &Env{})
	ours.do(1)
	if diff := cmp.Diff(table(t, theirs.DSN), table(t, ours.env.DSN)); diff != "" {
		t.Errorf("pgbench -, ours +:\n%s", diff)
	}
}

func table(t *testing.T, dsn string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), "SELECT n || ': ' || x FROM done ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(lines) == 0 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	return lines
}
