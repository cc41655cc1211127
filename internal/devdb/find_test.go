//go:build unix && !solaris && !aix

package devdb

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The tests in this file change the environment, so they can't be parallel.

func clearEnv(t *testing.T) {
	t.Helper()
	for _, name := range []string{envPostgresURL, envPostgresBin, envMySQLDSN, envMySQLD} {
		t.Setenv(name, "")
	}
}

// bareMachine hides every server that is installed here.
func bareMachine(t *testing.T) {
	t.Helper()
	clearEnv(t)
	t.Setenv("PATH", t.TempDir())
	t.Setenv(envServersDir, t.TempDir())
	pg, my := postgresPlaces, mysqldPlaces
	postgresPlaces, mysqldPlaces = nil, nil
	t.Cleanup(func() { postgresPlaces, mysqldPlaces = pg, my })
}

func TestNotFoundNamesAllWays(t *testing.T) {
	bareMachine(t)
	if kinds := Available(t.Context()); len(kinds) != 0 {
		t.Errorf("Available on a bare machine: %v", kinds)
	}
	for kind, ways := range map[Kind][]string{
		Postgres: {envPostgresURL, envPostgresBin, "initdb", "servers.sh", "brew install", "fetch-servers.sh", "Docker"},
		MariaDB:  {envMySQLDSN, envMySQLD, "mariadbd", "servers.sh", "brew install", "fetch-servers.sh", "Docker"},
		MySQL:    {envMySQLDSN, envMySQLD, "mysqld", "fetch-servers.sh", "Docker"},
	} {
		_, err := Start(t.Context(), kind, Options{})
		var absent *NotFoundError
		if !errors.As(err, &absent) || absent.Kind != kind {
			t.Errorf("%s: %v, want a NotFoundError of this kind", kind, err)
			continue
		}
		for _, way := range ways {
			if !strings.Contains(err.Error(), way) {
				t.Errorf("%s: the error does not name %s: %v", kind, way, err)
			}
		}
	}
	if _, err := MySQLFamily(t.Context()); !errors.As(err, new(*NotFoundError)) {
		t.Errorf("MySQLFamily: %v, want a NotFoundError", err)
	}
}

func TestFallbackComesLast(t *testing.T) {
	bareMachine(t)
	want := &Server{Kind: MySQL}
	got, err := Start(t.Context(), MySQL, Options{Fallback: func(_ context.Context, kind Kind) (*Server, error) {
		if kind != MySQL {
			t.Errorf("asked for %s", kind)
		}
		return want, nil
	}})
	if got != want || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestUnknownKind(t *testing.T) {
	if _, err := Start(t.Context(), "oracle", Options{}); err == nil || !strings.Contains(err.Error(), "postgres, mariadb or mysql") {
		t.Errorf("got %v", err)
	}
}

func TestVariableThatNamesNothing(t *testing.T) {
	bareMachine(t)
	t.Setenv(envPostgresBin, "/nowhere")
	t.Setenv(envMySQLD, "/nowhere/mysqld")
	for kind, name := range map[Kind]string{
		Postgres: envPostgresBin, MariaDB: envMySQLD, MySQL: envMySQLD,
	} {
		if _, err := Start(t.Context(), kind, Options{}); err == nil || !strings.Contains(err.Error(), name+"=/nowhere") {
			t.Errorf("%s: %v, want an error that names %s", kind, err, name)
		}
	}
}

func TestNamedBinaryDecidesItsKind(t *testing.T) {
	bareMachine(t)
	dir := t.TempDir()
	program(t, filepath.Join(dir, "mysqld"), "mysqld  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64")
	program(t, filepath.Join(dir, "mariadb-install-db"), "")
	t.Setenv(envMySQLD, filepath.Join(dir, "mysqld"))
	if kind, err := MySQLFamily(t.Context()); kind != MariaDB || err != nil {
		t.Errorf("MariaDB under the name mysqld: %s, %v", kind, err)
	}
	if got := Available(t.Context()); !slices.Equal(got, []Kind{MariaDB}) {
		t.Errorf("Available: %v", got)
	}
	program(t, filepath.Join(dir, "mysqld"), "mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))")
	if kind, err := MySQLFamily(t.Context()); kind != MySQL || err != nil {
		t.Errorf("MySQL: %s, %v", kind, err)
	}
}

func program(t *testing.T, path, says string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+says+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestNewestFirst(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for _, name := range []string{"postgres-18", "postgres-14", "postgres-9"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		want = append(want, filepath.Join(dir, name, "bin"))
	}
	if got := newestFirst(filepath.Join(dir, "postgres-*", "bin")); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestMySQLVersion(t *testing.T) {
	for text, want := range map[string]serverVersion{
		"10.11.19-MariaDB-0+deb12u1":   {MariaDB, "10.11.19"},
		"5.5.5-10.6.22-MariaDB-log":    {MariaDB, "10.6.22"},
		"8.0.43":                       {MySQL, "8.0.43"},
		"9.7.4-2 for Linux on x86_64":  {MySQL, "9.7.4"},
		"8.0.36-28 Percona Server":     {MySQL, "8.0.36"},
		"11.8.6-MariaDB from Debian -": {MariaDB, "11.8.6"},
	} {
		if got := mysqlVersion(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestGivenServer(t *testing.T) {
	clearEnv(t)
	oneOfEachFamily(t, func(t *testing.T, kind Kind) {
		own := start(t, kind, false)
		name := envMySQLDSN
		if kind == Postgres {
			name = envPostgresURL
		}
		t.Setenv(name, own.AdminDSN())
		var said string
		given, err := Start(t.Context(), kind, Options{Logf: func(format string, args ...any) { said = args[0].(string) }})
		if err != nil {
			t.Fatal(err)
		}
		if given.PID() != 0 || given.Source != name || given.Version != own.Version || !strings.Contains(said, name) {
			t.Errorf("not the server given: %+v, said %q", given, said)
		}
		if !slices.Contains(Available(t.Context()), kind) {
			t.Error("Available does not list it")
		}
		if kind != Postgres {
			checkFamily(t, kind)
		}
		checkGivenLives(t, kind, given, own)
	})
}

func checkFamily(t *testing.T, kind Kind) {
	t.Helper()
	if got, err := MySQLFamily(t.Context()); got != kind || err != nil {
		t.Errorf("MySQLFamily: %s, %v, want %s", got, err, kind)
	}
	other := MySQL
	if kind == MySQL {
		other = MariaDB
	}
	if s, err := fromDSN(t.Context(), other); s != nil || err != nil {
		t.Errorf("a %s server was taken for %s: %v, %v", kind, other, s, err)
	}
}

// checkGivenLives makes a database on the given server and shows that Close leaves it running.
func checkGivenLives(t *testing.T, kind Kind, given, own *Server) {
	t.Helper()
	dsn, drop, err := given.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	execute(t, kind, dsn, "CREATE TABLE t (a int)")
	if err := drop(t.Context()); err != nil {
		t.Error(err)
	}
	if given.Kill() == nil || given.Restart(t.Context()) == nil || given.Freeze() == nil {
		t.Error("a server of somebody else was killed, restarted or frozen")
	}
	if err := given.Close(); err != nil {
		t.Error(err)
	}
	if _, err := own.askVersion(t.Context()); err != nil {
		t.Errorf("Close stopped a server that was given: %v", err)
	}
}

func oneOfEachFamily(t *testing.T, fn func(t *testing.T, kind Kind)) {
	t.Helper()
	kinds := startable(t)
	for _, kind := range kinds {
		if kind == MySQL && slices.Contains(kinds, MariaDB) {
			continue // the slower to start
		}
		t.Run(string(kind), func(t *testing.T) { fn(t, kind) })
	}
}

const secret = "s3cr%3Ft"

func TestUnreadableDSN(t *testing.T) {
	clearEnv(t)
	for _, dsn := range []string{
		"postgres://u:" + secret + "%zz@h/db", "postgres://u:" + secret + "/x@h/db", "u:" + secret + "@tcp(h)/db",
		"postgres://u:" + secret + "@h:port/db", "password=" + secret + " nonsense", "postgres://u:" + secret + "@h/db?sslmode=x",
	} {
		t.Setenv(envPostgresURL, dsn)
		checkDSNError(t, Postgres, envPostgresURL)
	}
	for _, dsn := range []string{
		"mysql://u:" + secret + "@h/db", "u:" + secret + "/tcp(h)/db", "u:" + secret, "u:" + secret + "@/db?parseTime=" + secret,
		"u:" + secret + "@tcp(h/db", "u:" + secret + "@tcp(h)/db?tls=" + secret,
	} {
		t.Setenv(envMySQLDSN, dsn)
		checkDSNError(t, MariaDB, envMySQLDSN)
		checkDSNError(t, MySQL, envMySQLDSN)
	}
}

func checkDSNError(t *testing.T, kind Kind, name string) {
	t.Helper()
	_, err := Start(t.Context(), kind, Options{})
	var d *DSNError
	if !errors.As(err, &d) || d.Var != name {
		t.Errorf("%s: %v, want a DSNError of %s", kind, err, name)
		return
	}
	if strings.Contains(err.Error(), "s3cr") || !strings.Contains(err.Error(), name) {
		t.Errorf("the error shows the password, or lacks %s: %v", name, err)
	}
}

func TestUnreachableDSN(t *testing.T) {
	clearEnv(t)
	t.Setenv(envPostgresURL, "postgres://u:"+secret+"@127.0.0.1:1/db?password="+secret)
	t.Setenv(envMySQLDSN, "u:"+secret+"@tcp(127.0.0.1:1)/db")
	checkDSNError(t, Postgres, envPostgresURL)
	checkDSNError(t, MariaDB, envMySQLDSN)
	if got := Available(t.Context()); !slices.Contains(got, Postgres) || !slices.Contains(got, MySQL) {
		t.Errorf("Available: %v: what the environment names must be tried, and fail aloud", got)
	}
}

func TestWrongPasswordIsNotShown(t *testing.T) {
	clearEnv(t)
	s := start(t, startable(t)[0], false)
	t.Setenv(envPostgresURL, strings.Replace(s.AdminDSN(), s.local.password, secret, 1))
	t.Setenv(envMySQLDSN, strings.Replace(s.AdminDSN(), s.local.password, secret, 1))
	if s.Kind == Postgres {
		checkDSNError(t, Postgres, envPostgresURL)
	} else {
		checkDSNError(t, s.Kind, envMySQLDSN)
	}
}

func TestParseEmpty(t *testing.T) {
	if _, err := ParsePostgres(" "); !errors.As(err, new(*DSNError)) {
		t.Errorf("postgres: %v; an empty string must not mean libpq's environment", err)
	}
	if _, err := ParseMySQL(""); !errors.As(err, new(*DSNError)) {
		t.Errorf("mysql: %v", err)
	}
}

func TestDatabaseOfADSN(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://u:p%2Fw@h:5/old?sslmode=disable&dbname=old": "postgres://u:p%2Fw@h:5/new?sslmode=disable",
		"host=h user=u dbname=old":                              "host=h user=u dbname=old dbname=new",
	} {
		got := postgresWithDatabase(dsn, "new")
		if got != want {
			t.Errorf("%s: %s, want %s", dsn, got, want)
		}
		if c, err := ParsePostgres(got); err != nil || c.ConnConfig.Database != "new" {
			t.Errorf("%s leads to %+v, %v", got, c, err)
		}
	}
	c, err := ParseMySQL("u:p/w@tcp(h:5)/old?parseTime=true&clientFoundRows=true&loc=Local&tls=skip-verify")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := mysqlWithDatabase(c, "new"), "u:p/w@tcp(h:5)/new?tls=skip-verify"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
