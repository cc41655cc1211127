package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/doctor"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
)

// diagnose runs the command, both ways, and holds what both say against each other.
func diagnose(t *testing.T, args ...string) doctor.Report {
	t.Helper()
	args = append([]string{"doctor"}, args...)
	shown := invoke(t, "", args...)
	asJSON := invoke(t, "", append(args, "--json")...)
	var r doctor.Report
	in := json.NewDecoder(strings.NewReader(asJSON.out))
	in.DisallowUnknownFields()
	if err := in.Decode(&r); err != nil || in.More() {
		t.Fatalf("%v: %q, %q", err, asJSON.out, asJSON.err)
	}
	want := 0
	if r.Problems > 0 {
		want = 1
	}
	for _, run := range []result{shown, asJSON} {
		if run.code != want || (run.err == "") != (want == 0) || strings.Count(run.err, "\n") > 1 {
			t.Errorf("%d problems, exit %d, err %q", r.Problems, run.code, run.err)
		}
		if strings.Contains(run.out+run.err, "s3cret") {
			t.Errorf("the password is shown: %s%s", run.out, run.err)
		}
	}
	for _, f := range r.Findings {
		if !slices.Contains(doctor.Checks(), f.Check) || !strings.Contains(shown.out, string(f.Status)) || !strings.Contains(shown.out, f.Check) {
			t.Errorf("%+v is not in %s", f, shown.out)
		}
	}
	return r
}

// wantFinding looks for one finding of a check.
func wantFinding(t *testing.T, r doctor.Report, check string, status doctor.Status, text string) {
	t.Helper()
	for _, f := range r.Findings {
		if f.Check == check && f.Status == status && strings.Contains(f.Found+" "+f.Advice, text) {
			return
		}
	}
	t.Errorf("no %s %s with %q in %+v", status, check, text, r.Findings)
}

// change runs statements as the user of the DSN.
func change(t *testing.T, database string, statements ...string) {
	t.Helper()
	db := openFlag(t, database)
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func openFlag(t *testing.T, database string) *sql.DB {
	t.Helper()
	db, err := databaseFlags{Database: strings.TrimPrefix(database, "--database=")}.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestDoctorFindsNothingWrong(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			own := testdb.Own(t, kind)
			if own == nil {
				return
			}
			dsn, _, err := own.CreateDatabase(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			invoke(t, "", "migrate", "up", "--database="+dsn).want(t, 0, "")
			r := diagnose(t, "--database="+dsn)
			if r.Problems+r.Warnings > 0 || !strings.Contains(r.Server, own.Version) {
				t.Errorf("%+v", r)
			}
			for _, check := range []string{"schema", "tables", "grants", "durability", "writes", "pooler", "clock", "session_locks"} {
				wantFinding(t, r, check, doctor.OK, "")
			}
			wantNoRows(t, dsn)
		})
	}
}

// wantNoRows: an examination leaves nothing behind.
func wantNoRows(t *testing.T, dsn string) {
	t.Helper()
	db := openFlag(t, dsn)
	for _, table := range schema.Tables() {
		var rows int
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&rows); err != nil || rows > 0 {
			t.Errorf("%s has %d rows, %v", table, rows, err)
		}
	}
}

func TestDoctorOnTables(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind, database string) {
		wantFinding(t, diagnose(t, database), "schema", doctor.Problem, "dblock migrate up")
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		wantFinding(t, diagnose(t, database), "schema", doctor.OK, fmt.Sprint("version ", schema.Version))
		wantFinding(t, diagnose(t, database, "--schema=nowhere"), "schema", doctor.Problem, "nowhere")
		invoke(t, "", "doctor", database, "--schema=a.b").wantFailure(t, 2, "contains a dot")

		unsafe, text := "ALTER TABLE dblock_semaphore ENGINE = MyISAM", "ENGINE = InnoDB"
		if kind == devdb.Postgres {
			unsafe, text = "ALTER TABLE dblock_semaphore SET UNLOGGED", "SET LOGGED"
		}
		change(t, database, unsafe)
		wantFinding(t, diagnose(t, database), "tables", doctor.Problem, text)
		change(t, database, "DROP TABLE dblock_semaphore")
		wantFinding(t, diagnose(t, database), "tables", doctor.Problem, "dblock_semaphore is missing")
		drop := "DROP INDEX dblock_reservation_due"
		if kind != devdb.Postgres {
			drop += " ON dblock_reservation"
		}
		change(t, database, "ALTER TABLE dblock_lease DROP COLUMN shared", drop)
		wantFinding(t, diagnose(t, database), "tables", doctor.Problem, "column dblock_lease.shared is missing")
		wantFinding(t, diagnose(t, database), "tables", doctor.Problem, "index dblock_reservation.dblock_reservation_due is missing")
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		wantFinding(t, diagnose(t, database), "tables", doctor.OK, "")

		change(t, database, fmt.Sprint("DELETE FROM dblock_schema_version WHERE version_id = ", schema.Version))
		wantFinding(t, diagnose(t, database), "schema", doctor.Problem, "older than")
		change(t, database, "INSERT INTO dblock_schema_version (version_id, is_applied) VALUES (99, true)")
		wantFinding(t, diagnose(t, database), "schema", doctor.Problem, "newer than")
		change(t, database, "DROP TABLE dblock_schema_version")
		wantFinding(t, diagnose(t, database), "schema", doctor.Problem, "dblock_schema_version records no version of them")
	})
}

// TestDoctorOnSettingsThatAreRefused names settings of the DSN that constructors refuse.
func TestDoctorOnSettingsThatAreRefused(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		setting, check, text := "timestamp=1700000000", "clock", "take timestamp out"
		if kind == devdb.Postgres {
			setting, check, text = "client_encoding=LATIN1&standard_conforming_strings=off", "charset", "client_encoding = LATIN1"
		}
		before := diagnose(t, database)
		r := diagnose(t, suite.AppendQuery(database, setting))
		wantFinding(t, r, check, doctor.Problem, text)
		wantFinding(t, r, "tables", doctor.OK, "")
		if r.Problems != before.Problems+1 {
			t.Errorf("%d problems, want one more than %d: %+v", r.Problems, before.Problems, r.Findings)
		}
		if kind == devdb.Postgres {
			simple := suite.AppendQuery(database, "standard_conforming_strings=off&default_query_exec_mode=simple_protocol")
			wantFinding(t, diagnose(t, simple), "connection", doctor.Problem, "standard_conforming_strings=on")
		}
	})
}

// TestDoctorUnderASelectLimit: the limit is the one finding. What the server leaves out under it is
// read all the same.
func TestDoctorUnderASelectLimit(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind, database string) {
		if kind == devdb.Postgres {
			return // which has none
		}
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		want := diagnose(t, database).Problems + 1
		for _, limit := range []string{"3", "0"} {
			c, err := mysql.ParseDSN(strings.TrimPrefix(database, "--database="))
			if err != nil {
				t.Fatal(err)
			}
			c.Params = map[string]string{"sql_select_limit": limit}
			r := diagnose(t, "--database="+c.FormatDSN())
			wantFinding(t, r, "writes", doctor.Problem, "sql_select_limit = "+limit)
			wantFinding(t, r, "tables", doctor.OK, "")
			if r.Problems != want {
				t.Errorf("%d problems, want %d: %+v", r.Problems, want, r.Findings)
			}
		}
	})
}

// The servers that tests share forget commits in a crash.
func TestDoctorOnDurability(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind, database string) {
		text := "innodb_flush_log_at_trx_commit = "
		if kind == devdb.Postgres {
			text = "fsync = off"
		}
		wantFinding(t, diagnose(t, database), "durability", doctor.Problem, text)
	})
}

func TestDoctorOnGrants(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		service, role, grants := poorRole(t, kind, database, schema.PostgresServiceGrants, schema.MySQLServiceGrants)
		r := diagnose(t, service)
		if kind != devdb.Postgres { // which refuses users without rights
			wantFinding(t, r, "connection", doctor.Problem, "docs/grants.md")
		} else {
			wantFinding(t, r, "schema", doctor.Problem, "docs/grants.md")
			wantFinding(t, r, "grants", doctor.Problem, `GRANT SELECT, INSERT, UPDATE, DELETE ON "public".dblock_lease TO `+role)
		}
		change(t, database, grants...)
		r = diagnose(t, service)
		wantFinding(t, r, "grants", doctor.OK, "")
		wantFinding(t, r, "tables", doctor.OK, "")
		wantFinding(t, r, "schema", doctor.OK, "")
		change(t, database, "REVOKE UPDATE, DELETE ON dblock_lease FROM "+role)
		wantFinding(t, diagnose(t, service), "grants", doctor.Problem, "lacks UPDATE, DELETE on dblock_lease")
		change(t, database, "REVOKE SELECT ON dblock_schema_version FROM "+role)
		wantFinding(t, diagnose(t, service), "grants", doctor.Problem, "lacks SELECT on dblock_schema_version")
		wantNoRows(t, strings.TrimPrefix(database, "--database="))
	})
}

// poorRole may log in and no more; grants are what docs/grants.md gives it.
func poorRole(t *testing.T, kind devdb.Kind, database string, postgres, others func(in, role string) []string) (as, role string, grants []string) {
	t.Helper()
	dsn := strings.TrimPrefix(database, "--database=")
	if kind != devdb.Postgres {
		c, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		c.User, c.Passwd = "u"+c.DBName[len(c.DBName)-16:], "s3cret"
		role = "'" + c.User + "'@'%'"
		change(t, database, "CREATE USER "+role+" IDENTIFIED BY 's3cret'")
		t.Cleanup(func() { dropRole(t, dsn, "DROP USER "+role) })
		return "--database=" + c.FormatDSN(), role, others(c.DBName, c.User)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	name := "u" + u.Path[len(u.Path)-16:]
	role = `"` + name + `"`
	change(t, database, "CREATE ROLE "+role+" LOGIN PASSWORD 's3cret'")
	t.Cleanup(func() { dropRole(t, dsn, "DROP OWNED BY "+role, "DROP ROLE "+role) })
	u.User = url.UserPassword(name, "s3cret")
	return "--database=" + u.String(), role, postgres("public", name)
}

func dropRole(t *testing.T, dsn string, statements ...string) {
	db, err := databaseFlags{Database: dsn}.open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

func TestDoctorBehindAPooler(t *testing.T) {
	t.Parallel()
	if !slices.Contains(testdb.Engines(), devdb.Postgres) {
		return
	}
	direct := testdb.PostgresURL(t)
	invoke(t, "", "migrate", "up", "--database="+direct).want(t, 0, "")
	pooled := "--database=" + testdb.Pooled(t, direct)
	r := diagnose(t, pooled)
	wantFinding(t, r, "pooler", doctor.Note, "leases work")
	wantFinding(t, r, "session_locks", doctor.Note, "pooler")
	wantFinding(t, r, "schema", doctor.OK, "")
	r = diagnose(t, strings.ReplaceAll(pooled, "cache_describe", "cache_statement"))
	wantFinding(t, r, "pooler", doctor.Warning, "default_query_exec_mode")
	r = diagnose(t, "--database="+testdb.PooledIn(t, direct, "statement"))
	wantFinding(t, r, "pooler", doctor.Problem, "pool_mode")
}

func TestDoctorOnAStandby(t *testing.T) {
	t.Parallel()
	if !slices.Contains(testdb.Engines(), devdb.Postgres) {
		return
	}
	primary := testdb.Own(t, devdb.Postgres)
	if primary == nil {
		return
	}
	invoke(t, "", "migrate", "up", "--database="+primary.AdminDSN()).want(t, 0, "")
	r := diagnose(t, "--database="+testdb.Standby(t, primary).AdminDSN())
	wantFinding(t, r, "writes", doctor.Problem, "standby")
	wantFinding(t, r, "session_locks", doctor.Note, "standby")
	wantFinding(t, r, "schema", doctor.OK, "")
	r = diagnose(t, "--database="+primary.AdminDSN())
	wantFinding(t, r, "writes", doctor.OK, "")
	wantFinding(t, r, "durability", doctor.Note, "1 standbys")
}

func TestDoctorOnAReadOnlyServer(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		own := testdb.Own(t, kind)
		if own == nil {
			return
		}
		change(t, own.AdminDSN(), "SET GLOBAL read_only = 1")
		r := diagnose(t, "--database="+own.AdminDSN())
		wantFinding(t, r, "writes", doctor.Problem, "read-only")
		wantFinding(t, r, "schema", doctor.Problem, "name one in the DSN")
	}
}

// TestDoctorOnABinaryLogOfStatements shows that the server refuses what doctor says.
func TestDoctorOnABinaryLogOfStatements(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		own := testdb.Own(t, kind, "--log-bin", "--server-id=1", "--binlog-format=STATEMENT")
		if own == nil {
			return
		}
		change(t, own.AdminDSN(), "CREATE DATABASE app")
		c, err := mysql.ParseDSN(own.AdminDSN())
		if err != nil {
			t.Fatal(err)
		}
		c.DBName = "app"
		database := "--database=" + c.FormatDSN()
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		wantFinding(t, diagnose(t, database), "writes", doctor.Problem, "error 1665")
		db, err := sql.Open("mysql", c.FormatDSN())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		_, leases := mysqllock.NewLeaseLocker(t.Context(), db, mysqllock.LeaseOptions{})
		_, jobs := mysqlqueue.New(t.Context(), db, queue.Options{})
		_, sales := mysqlinventory.New(t.Context(), db, inventory.Options{})
		for _, err := range []error{leases, jobs, sales} {
			if !errors.Is(err, dblock.ErrUnsupported) || !strings.Contains(err.Error(), "binlog_format") {
				t.Errorf("a constructor: %v; want ErrUnsupported that names binlog_format", err)
			}
		}
		err = mysqllock.RunTx(t.Context(), db, mysqllock.TxOptions{}, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), "DELETE FROM dblock_lease")
			return err
		})
		if !strings.Contains(fmt.Sprint(err), "Error 1665") {
			t.Errorf("%v; want error 1665", err)
		}
	}
}

func TestDoctorWithoutAnAnswer(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind, database string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		closed, wrong := wrongDSNs(t, kind, strings.TrimPrefix(database, "--database="), address)
		// What accepts and says nothing is a server that hangs.
		silent := diagnose(t, "--database="+closed, "--timeout=200ms")
		wantFinding(t, silent, "connection", doctor.Problem, "no answer")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		r := diagnose(t, "--database="+closed)
		wantFinding(t, r, "connection", doctor.Problem, "nothing listens there")
		if len(r.Findings) != 1 || !strings.HasPrefix(r.Target, address) {
			t.Errorf("%+v", r)
		}
		wantFinding(t, diagnose(t, "--database="+wrong), "connection", doctor.Problem, "check user, password")
		invoke(t, "", "doctor", database, "--timeout=0s").wantFailure(t, 2, "--timeout")
	})
}

// wrongDSNs are one of another server, and one with another password.
func wrongDSNs(t *testing.T, kind devdb.Kind, dsn, address string) (elsewhere, wrong string) {
	t.Helper()
	if kind != devdb.Postgres {
		c, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		c.Passwd = "s3cret"
		wrong = c.FormatDSN()
		c.Addr = address
		return c.FormatDSN(), wrong
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), "s3cret")
	wrong = u.String()
	u.Host = address
	return u.String(), wrong
}
