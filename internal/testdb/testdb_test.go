package testdb

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/devdb"
)

// envChild makes a child run of this test binary misbehave in the way it names.
const envChild = "TESTDB_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(envChild) == "about mysql" {
		Main(m, devdb.MySQL)
	}
	Main(m)
}

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, kind := range Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			for _, name := range []string{"first", "second"} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					createTable(t, kind)
				})
			}
		})
	}
}

// createTable fails if the table exists already, that is, in a shared database.
func createTable(t *testing.T, kind devdb.Kind) {
	t.Helper()
	const create = "CREATE TABLE t (a int)"
	var err error
	if kind == devdb.Postgres {
		_, err = Postgres(t).Exec(t.Context(), create)
	} else {
		_, err = MySQLOn(t, kind).ExecContext(t.Context(), create)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDatabaseGoesWithItsTest(t *testing.T) {
	t.Parallel()
	for _, kind := range Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			var dsn string
			t.Run("the test", func(t *testing.T) { dsn = DSN(t, kind) })
			if err := reach(t.Context(), kind, dsn); err == nil {
				t.Error("the database is still there")
			}
		})
	}
}

func reach(ctx context.Context, kind devdb.Kind, dsn string) error {
	if kind == devdb.Postgres {
		c, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		return c.Close(ctx)
	}
	s, err := devdb.Attach(ctx, kind, dsn, "the test", nil)
	if err != nil {
		return err
	}
	return s.Close()
}

func TestMySQLIsTheServerUnderTest(t *testing.T) {
	t.Parallel()
	for _, kind := range Engines() {
		if kind == devdb.Postgres {
			continue
		}
		var version string
		if err := MySQL(t).QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&version); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(version, "MariaDB") != (kind == devdb.MariaDB) {
			t.Errorf("%s is under test, and MySQL gave %s", kind, version)
		}
		break // with both under test it gives the first
	}
}

func TestLeakedConnectionFailsTheTest(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	tb := &recorder{TB: t}
	closeInTime(tb, time.Millisecond, func() { <-release })
	if !tb.failed {
		t.Error("a pool that does not close went unnoticed")
	}
}

type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }

// TestChildLeaks is the misbehaviour of a child run; elsewhere it does nothing.
func TestChildLeaks(t *testing.T) {
	if os.Getenv(envChild) == "leak" {
		go func() { select {} }()
	}
}

func TestMainOfOtherRuns(t *testing.T) {
	t.Parallel()
	first := string(Engines()[0])
	for name, tt := range map[string]struct {
		env  []string
		run  string
		code int
		says string
	}{
		"clean":            {nil, "TestChildLeaks", 0, "engines under test: " + first},
		"leaked goroutine": {[]string{envChild + "=leak"}, "TestChildLeaks", 1, "goroutines left behind"},
		"unknown engine":   {[]string{envEngines + "=oracle"}, "TestChildLeaks", 1, `"oracle" is none of`},
		"absent engine": {
			[]string{envEngines + "=mysql", "DBLOCK_MYSQL_DSN=", "DBLOCK_MYSQLD=/nowhere/mysqld", envDocker + "="},
			"TestDatabaseGoesWithItsTest", 1, "DBLOCK_MYSQLD=/nowhere/mysqld",
		},
		"unreadable DSN": {
			[]string{"DBLOCK_MYSQL_DSN=secret", envEngines + "=", envDocker + "="},
			"TestChildLeaks", 1, "DBLOCK_MYSQL_DSN: not readable",
		},
		"another engine": {
			[]string{envChild + "=about mysql", envEngines + "=" + notMySQL()}, "", 0, "nothing to run",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^"+tt.run+"$")
			cmd.Env = append(os.Environ(), tt.env...)
			out, _ := cmd.CombinedOutput() // the exit status is looked at below
			if cmd.ProcessState.ExitCode() != tt.code || !strings.Contains(string(out), tt.says) {
				t.Errorf("exit status %d, want %d and %q in:\n%s", cmd.ProcessState.ExitCode(), tt.code, tt.says, out)
			}
			if strings.Contains(string(out), "secret") {
				t.Errorf("shows a DSN:\n%s", out)
			}
		})
	}
}

// notMySQL is an engine that this run can give and that is not MySQL.
func notMySQL() string {
	for _, kind := range devdb.Available(context.Background()) {
		if kind != devdb.MySQL {
			return string(kind)
		}
	}
	return string(devdb.Postgres)
}
