package bench

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

// hasPgbench reports whether both Postgres and pgbench are there to test with.
func hasPgbench(t *testing.T) bool {
	t.Helper()
	if !slices.Contains(testdb.Engines(), devdb.Postgres) {
		return false
	}
	if _, err := findProgram(append([]string{testdb.Server(t, devdb.Postgres).Source}, pgbenchFolders...), []string{"pgbench"}); err != nil {
		t.Log("pgbench: ", err)
		return false
	}
	return true
}

// openScript writes the files, and opens the scenario of that name on a database of the test's own.
func openScript(t *testing.T, kind devdb.Kind, name, file, script, setup string, clients int) (*Env, Workload) {
	t.Helper()
	env := &Env{
		Kind: kind, Server: testdb.Server(t, kind), DSN: testdb.DSN(t, kind),
		Clients: clients, Conns: clients, Seed: 7, Dir: t.TempDir(),
	}
	f := writeScript(t, file, script, setup)
	all := scripts(f)
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	require.NotEqual(t, -1, i, name)
	w, err := all[i].Open(t.Context(), env)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, w.Close())
		left, err := os.ReadDir(env.Dir)
		assert.NoError(t, err)
		assert.Empty(t, left, "files are left")
	})
	return env, w
}

func writeScript(t *testing.T, file, script, setup string) scriptFlags {
	t.Helper()
	f := scriptFlags{file: filepath.Join(t.TempDir(), file)}
	require.NoError(t, os.WriteFile(f.file, []byte(script), 0o600))
	if setup != "" {
		f.setup = filepath.Join(t.TempDir(), "setup.sql")
		require.NoError(t, os.WriteFile(f.setup, []byte(setup), 0o600))
	}
	return f
}

func openPgbenchOn(t *testing.T, script, setup string, clients int) (*Env, Workload) {
	t.Helper()
	return openScript(t, devdb.Postgres, "pgbench", "my script.sql", script, setup, clients)
}

func runScript(ctx context.Context, t *testing.T, w Workload, d time.Duration) (Sample, error) {
	t.Helper()
	round, err := w.Round(ctx, 1)
	require.NoError(t, err)
	return round.Run(ctx, d)
}

// ask gets one number from the database.
func ask(t *testing.T, env *Env, query string) (n int64) {
	t.Helper()
	driver := "mysql"
	if env.Kind == devdb.Postgres {
		driver = "pgx"
	}
	db, err := sql.Open(driver, env.DSN)
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n), query)
	return n
}

func TestPgbenchIsMeasured(t *testing.T) {
	t.Parallel()
	if !hasPgbench(t) {
		return
	}
	env, w := openPgbenchOn(t, "INSERT INTO done VALUES (:client_id)", "CREATE TABLE done (client int);\nVACUUM done;", 3)
	s, err := runScript(t.Context(), t, w, 1500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	assert.Equal(t, s.OK, ask(t, env, "SELECT count(*) FROM done"))
	assert.EqualValues(t, 3, ask(t, env, "SELECT count(DISTINCT client) FROM done"))
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
	s, err := runScript(t.Context(), t, w, time.Second)
	if !w.(*pgbench).detailed {
		return // up to version 14, it does not go on after one
	}
	if err != nil || s.Failed["serialization"] == 0 {
		t.Errorf("got %+v, %v", s, err)
	}
	assert.Equal(t, s.OK, ask(t, env, "SELECT n FROM t"))
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
		if _, err := runScript(t.Context(), t, w, time.Second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", script, err, want)
		}
	}
	env := &Env{Kind: devdb.Postgres, DSN: testdb.PostgresURL(t), Clients: 1, Dir: t.TempDir()}
	open := func(f scriptFlags) error {
		_, err := scripts(f)[0].Open(t.Context(), env)
		return err
	}
	assert.ErrorIs(t, open(scriptFlags{file: filepath.Join(t.TempDir(), "missing")}), os.ErrNotExist)
	assert.ErrorContains(t, open(writeScript(t, "a.sql", "SELECT 1;", "SELECT 1;\nVACUUMS;")), `syntax error at or near "VACUUMS"`)
}

func TestProgramsAreLookedFor(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	folders := []string{filepath.Join(dir, "server"), filepath.Join(dir, "postgresql-*")}
	names := []string{"pgbench"}
	_, err := findProgram(folders, names)
	assert.ErrorIs(t, err, exec.ErrNotFound)
	// From the place that is looked at last, to the one before all.
	for _, sub := range []string{"", "postgresql-9", "postgresql-17", "server"} {
		path := filepath.Join(dir, sub, "pgbench")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700))
		found, err := findProgram(folders, names)
		assert.NoError(t, err)
		assert.Equal(t, path, found)
	}
	_, err = newProgram(&Env{}, scriptFlags{}, nil, "install it", "nonesuch", "another")
	assert.EqualError(t, err, "nonesuch or another is not installed: install it")
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
