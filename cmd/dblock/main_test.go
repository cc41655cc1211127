package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/guardian"
	"github.com/dblock-go/dblock/internal/migratelock"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/testdb"
)

// envCommand makes the test binary be the command itself.
const envCommand = "DBLOCK_TEST_COMMAND"

func TestMain(m *testing.M) {
	guardian.Main()
	if os.Getenv(envCommand) != "" {
		main()
	}
	testdb.Main(m)
}

type result struct {
	code     int
	out, err string
}

// invoke runs the command in this process; in is what a person types.
func invoke(t *testing.T, in string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), args, streams{strings.NewReader(in), &out, &errs, in != ""})
	return result{code, out.String(), errs.String()}
}

func (r result) want(t *testing.T, code int, out string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.out, out) {
		t.Errorf("exit %d, out %q, err %q; want exit %d and %q", r.code, r.out, r.err, code, out)
	}
	if (r.code == 0) != (r.err == "") {
		t.Errorf("exit %d, but stderr has %q", r.code, r.err)
	}
}

// wantFailure is one line on stderr and nothing else.
func (r result) wantFailure(t *testing.T, code int, text string) {
	t.Helper()
	oneLine := strings.HasPrefix(r.err, "dblock: ") && strings.Count(r.err, "\n") == 1 && strings.HasSuffix(r.err, "\n")
	if r.code != code || !oneLine || !strings.Contains(r.err, text) || r.out != "" {
		t.Errorf("exit %d, out %q, err %q; want exit %d and one line with %q", r.code, r.out, r.err, code, text)
	}
	if strings.Contains(r.err, "s3cret") {
		t.Errorf("the password is shown: %s", r.err)
	}
}

func each(t *testing.T, fn func(t *testing.T, kind devdb.Kind, database string)) {
	t.Helper()
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			fn(t, kind, "--database="+testdb.DSN(t, kind))
		})
	}
}

func TestMigrate(t *testing.T) {
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		invoke(t, "", "migrate", "status", database).want(t, 0, "pending  00001_inventory.sql\n")
		invoke(t, "", "migrate", "up", database).want(t, 0, "applied 00001_inventory.sql (")
		invoke(t, "", "migrate", "up", database).want(t, 0, fmt.Sprintf("up to date: version %d\n", schema.Version))
		invoke(t, "", "migrate", "status", database).want(t, 0, "applied  00001_inventory.sql\n")
		invoke(t, "", "migrate", "down", "--yes", database).want(t, 0, "undone 00011_bounds.sql (")
		invoke(t, "", "migrate", "down", "--yes", "--all", database).want(t, 0, "undone 00001_inventory.sql (")
		invoke(t, "", "migrate", "down", "--yes", "--all", database).want(t, 0, "nothing to undo")
		invoke(t, "", "migrate", "status", database).want(t, 0, "pending  00001_inventory.sql\n")
	})
}

func TestStatusJSON(t *testing.T) {
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		var got status
		if err := json.Unmarshal([]byte(invoke(t, "", "migrate", "status", "--json", database).out), &got); err != nil {
			t.Fatal(err)
		}
		if got.Have != schema.Version || got.Want != schema.Version || len(got.Migrations) != int(schema.Version) ||
			!got.Migrations[0].Applied || got.Migrations[0].Name != "00001_inventory.sql" {
			t.Errorf("got %+v", got)
		}
	})
}

// The data is removed only after a confirmation.
func TestDownNeedsAYes(t *testing.T) {
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		invoke(t, "", "migrate", "down", database).wantFailure(t, 1, "--yes")
		for _, answer := range []string{"no\n", "y\n", "\n"} {
			if r := invoke(t, answer, "migrate", "down", database); r.code != 1 || !strings.Contains(r.err, "nothing was dropped") {
				t.Errorf("the answer %q: %+v", answer, r)
			}
		}
		invoke(t, "", "migrate", "status", database).want(t, 0, "applied")
		if r := invoke(t, "yes\n", "migrate", "down", database); r.code != 0 || !strings.Contains(r.out, "undone") {
			t.Errorf("the answer yes: %+v", r)
		}
	})
}

func TestNewerTables(t *testing.T) {
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		db, err := databaseFlags{Database: strings.TrimPrefix(database, "--database=")}.open()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		if _, err := db.ExecContext(t.Context(), "INSERT INTO dblock_schema_version (version_id, is_applied) VALUES (99, true)"); err != nil {
			t.Fatal(err)
		}
		invoke(t, "", "migrate", "up", database).wantFailure(t, 1, fmt.Sprint("newer than ", schema.Version))
		invoke(t, "", "migrate", "down", "--yes", database).wantFailure(t, 1, fmt.Sprint("newer than ", schema.Version))
		invoke(t, "", "migrate", "status", database).want(t, 0, "version 99: newer than this program")
	})
}

func TestSQL(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"postgres", "mysql"} {
		invoke(t, "", "migrate", "sql", "--engine", engine).want(t, 0, "CREATE TABLE")
		invoke(t, "", "migrate", "sql", "--engine", engine, "--down").want(t, 0, "DROP TABLE dblock_schema_version;")
		invoke(t, "", "migrate", "sql", "--engine", engine, "--format=goose", "--schema=locks").want(t, 0, "-- +goose Down\n")
	}
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	invoke(t, "", "--help").want(t, 0, "migrate up")
	invoke(t, "", "migrate", "down", "--help").want(t, 0, "--yes")
	invoke(t, "", "version").want(t, 0, fmt.Sprint("tables version ", schema.Version))
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for text, args := range map[string][]string{
		"expected one of":         {},
		"unexpected argument":     {"bogus"},
		"--engine":                {"migrate", "sql"},
		"--engine must be one of": {"migrate", "sql", "--engine", "oracle"},
		"--format plain only":     {"migrate", "sql", "--engine=mysql", "--format=goose", "--down"},
		"--lock-timeout":          {"migrate", "up", "--database=x", "--lock-timeout=soon"},
		"--limit: 0":              {"queue", "list", "--database=x", "--limit=0"},
		"unknown flag":            {"migrate", "up", "--databse=u:s3cret@tcp(h)/x"},
	} {
		invoke(t, "", args...).wantFailure(t, 2, text)
	}
}

// TestTextIsTakenAsItIs: no two arguments become the same key, and a command gets its arguments
// unchanged.
func TestTextIsTakenAsItIs(t *testing.T) {
	const bad = "k\xff"
	for _, args := range [][]string{
		{"lock", bad, "true"}, {"lock", "--label=" + bad, "k", "true"}, {"lock", "--schema=" + bad, "k", "true"},
		{"unlock", "--token=1", bad}, {"permits", bad, "1"}, {"queue", "pause", bad}, {"queue", "resume", bad}, {"queue", "list", "--queue=" + bad},
		{"queue", "list", "--state=" + bad}, {"queue", "show", bad}, {"queue", "cancel", bad}, {"queue", "retry", bad},
		{"queue", "discard", "1", "--reason=" + bad}, {"queue", "purge", "--older=1h", "--queue=" + bad}, {"migrate", "up", "--schema=" + bad},
	} {
		args = append(append([]string{}, args[:len(args)-1]...), "--database=x", args[len(args)-1])
		invoke(t, "", args...).wantFailure(t, 2, `"k\xff" is not valid UTF-8`)
	}
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		invoke(t, "", "lock", database, "k\ufffd", "--", "sh", "-c", `printf %s "$DBLOCK_KEY $0"`, bad).want(t, 0, "k\ufffd "+bad)
	})
}

func TestErrorsNeverShowThePassword(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String() // no process listens there after this
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for database, text := range map[string]string{
		"postgres://u:s3cret@" + address + "/x":      "dblock: database unavailable: dial tcp " + address,
		"u:s3cret@tcp(" + address + ")/x":            "dblock: database unavailable: dial tcp " + address,
		"postgres://u:s3cret%zz@" + address + "/x":   "--database: not readable",
		"postgres://u:s3cret@" + address + ":99/x":   "--database: not readable",
		"postgres://u:a@s3cret@" + address + "/x":    "write the @ of a user or a password as %40",
		"postgres://u:a@b/s3cret@" + address + "/x":  "write the @ of a user or a password as %40",
		"postgres://" + address + "/x?host=s3cret@a": "write the @ of a user or a password as %40",
		"mysql://u:s3cret@" + address + "/x":         "mysql:// URL",
		"u:s3cret@" + address:                        "not readable as a MySQL DSN",
		"u:s3cret:tcp(" + address + ")/x":            "not readable as a MySQL DSN",
		"host=localhost user=u password=s3cret":      "not readable as a MySQL DSN",
		"u:s3cret@tcp(" + address + ")/x?timeout=no": "not readable as a MySQL DSN",
	} {
		invoke(t, "", "migrate", "up", "--database="+database).wantFailure(t, 1, text)
	}
}

func TestBadSchemaName(t *testing.T) {
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", "--schema=a.b", database).wantFailure(t, 2, "contains a dot")
	})
}

// The command as a process of its own: environment, exit status, and an end by a signal while it
// waits for another that migrates.
func TestProcess(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind, database string) {
		dsn := strings.TrimPrefix(database, "--database=")
		if out, err := process(t.Context(), dsn, "migrate", "up").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		release := lockMigrations(t, kind, dsn)
		defer release()
		waiting := process(t.Context(), dsn, "migrate", "down", "--yes", "--lock-timeout=10m")
		var out bytes.Buffer
		waiting.Stdout, waiting.Stderr = &out, &out
		if err := waiting.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSecondSession(t, kind, dsn)
		if err := waiting.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		err := waiting.Wait()
		if waiting.ProcessState.ExitCode() != 1 || !strings.Contains(out.String(), "terminated") && !strings.Contains(out.String(), "canceled") {
			t.Errorf("%v: %q, want exit 1 and the reason", err, &out)
		}
		invoke(t, "", "migrate", "status", database).want(t, 0, "applied")
	})
}

func process(ctx context.Context, dsn string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err) // there is always one on the systems that are supported
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), envCommand+"=1", "DBLOCK_DATABASE="+dsn)
	return cmd
}

// lockMigrations stands for a process that migrates and takes its time.
func lockMigrations(t *testing.T, kind devdb.Kind, dsn string) (release func()) {
	t.Helper()
	db, err := databaseFlags{Database: dsn}.open()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if kind == devdb.Postgres {
		err = (&migratelock.Postgres{Schema: "public"}).SessionLock(t.Context(), conn)
	} else {
		var name string
		if err := conn.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&name); err != nil {
			t.Fatal(err)
		}
		err = (&migratelock.MySQL{Database: name}).SessionLock(t.Context(), conn)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { _, _ = conn.Close(), db.Close() }
}

// awaitSecondSession returns when the waiting process has asked for the lock.
func awaitSecondSession(t *testing.T, kind devdb.Kind, dsn string) {
	t.Helper()
	db, err := databaseFlags{Database: dsn}.open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	query := "SELECT COUNT(*) FROM " + devdb.Processlist + " WHERE db = DATABASE() AND state = 'User lock'"
	if kind == devdb.Postgres {
		query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_try_advisory_lock%' AND pid <> pg_backend_pid() AND NOT EXISTS " +
			"(SELECT FROM pg_locks WHERE locktype = 'advisory' AND pg_locks.pid = pg_stat_activity.pid)"
	}
	for t.Context().Err() == nil {
		var waiting int
		if err := db.QueryRowContext(t.Context(), query).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		if waiting > 0 {
			return
		}
	}
}
