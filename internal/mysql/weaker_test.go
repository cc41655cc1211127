package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

// TestWeakerConstraintsAreRefused: a key or a CHECK of the right name excludes less than that of
// the migrations, or is gone. The owner and a service with the documented grants are refused, and
// Up names it.
func TestWeakerConstraintsAreRefused(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue // see package postgres
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			weakerConstraintsAreRefused(t, kind)
		})
	}
}

func weakerConstraintsAreRefused(t *testing.T, kind devdb.Kind) {
	owner, service, exec := installed(t, kind, schema.MySQLServiceGrants)
	const (
		alter   = "ALTER TABLE dblock_quota "
		noKey   = alter + "DROP PRIMARY KEY"
		key     = noKey + ", ADD PRIMARY KEY (sku, buyer)"
		noCheck = alter + "DROP CONSTRAINT dblock_quota_used"
		check   = alter + "ADD CONSTRAINT dblock_quota_used CHECK (used BETWEEN 0 AND most)"

		keyIs, checkIs, whole = "index dblock_quota.PRIMARY is ", "check dblock_quota.dblock_quota_used is ", ` instead of "unique sku, buyer"`

		add, used, of = noCheck + ", ADD CONSTRAINT dblock_quota_used CHECK ", ` instead of "used between 0 and most"`, "ALTER TABLE dblock_reservation "
	)
	cases := [][]string{ // weaken, mend, and the differences
		{noKey, alter + "ADD PRIMARY KEY (sku, buyer)", keyIs + "missing"},
		{noKey + ", ADD INDEX own (sku, buyer)", alter + "DROP INDEX own, ADD PRIMARY KEY (sku, buyer)", keyIs + "missing"},
		{noKey + ", DROP CONSTRAINT dblock_quota_used", check + ", ADD PRIMARY KEY (sku, buyer)", checkIs + "missing", keyIs + "missing"},
		{noKey + ", ADD PRIMARY KEY (sku(4), buyer)", key, keyIs + `"unique sku(4), buyer"` + whole},
		{noKey + ", ADD PRIMARY KEY (sku, buyer, used)", key, keyIs + `"unique sku, buyer, used"` + whole},
		{noCheck, check, checkIs + "missing"},
		{add + "(used >= 0)", add + "(used BETWEEN 0 AND most)", checkIs + `"used >= 0"` + used},
		{of + "ALTER limited SET DEFAULT 1", of + "ALTER limited SET DEFAULT 0", "column dblock_reservation.limited is " +
			`"tinyint not null default 1" instead of "tinyint not null default 0"`},
		{of + "MODIFY expires_at DATETIME(6) ON UPDATE CURRENT_TIMESTAMP(6)", of + "MODIFY expires_at DATETIME(6)",
			`column dblock_reservation.expires_at is "datetime(6) on update" instead of "datetime(6)"`},
	}
	if kind == devdb.MySQL {
		cases = append(cases, []string{alter + "ALTER CHECK dblock_quota_used NOT ENFORCED", alter + "ALTER CHECK dblock_quota_used ENFORCED",
			checkIs + `"used between 0 and most, but not enforced"` + used})
	}
	for _, c := range cases {
		weaken, mend, want := c[0], c[1], c[2:]
		exec(weaken)
		for user, db := range map[string]*sql.DB{"the owner": owner, "the service": service} {
			_, err := mysql.CheckSchema(t.Context(), db, "")
			var wrong *dblock.SchemaError
			if !errors.As(err, &wrong) || !slices.Equal(wrong.Differences, want) {
				t.Errorf("%s, as %s: %v, want %q", weaken, user, err, want)
			}
		}
		_, err := migrations.Up(t.Context(), owner, migrations.Options{})
		for _, difference := range want {
			if !errors.Is(err, dblock.ErrSchema) || !strings.Contains(err.Error(), difference) {
				t.Errorf("%s: Up: %v, want %q", weaken, err, difference)
			}
		}
		exec(mend)
	}
	exec("CREATE UNIQUE INDEX own ON dblock_reservation (buyer)") // inserts into this table name no key
	exec("CREATE INDEX own ON dblock_quota (buyer)")
	exec("CREATE TABLE copied LIKE dblock_quota") // as gh-ost and pt-online-schema-change do: MySQL names the copy's CHECKs anew
	exec("RENAME TABLE dblock_quota TO own_old, copied TO dblock_quota")
	if _, err := migrations.Up(t.Context(), owner, migrations.Options{}); err != nil {
		t.Errorf("Up after a table was copied: %v", err)
	}
	exec("CREATE TABLE dblock_own (own INT, CONSTRAINT dblock_quota_used UNIQUE (own))")
	for user, db := range map[string]*sql.DB{"the owner": owner, "the service": service} {
		for _, mode := range []string{"", "ANSI_QUOTES"} {
			if _, err := mysql.CheckSchema(t.Context(), inMode(t, db, mode), ""); err != nil {
				t.Errorf("the control, as %s, with sql_mode %q: %v", user, mode, err)
			}
		}
	}
	exec("RENAME TABLE dblock_fence TO own")
	exec("CREATE VIEW dblock_fence AS SELECT * FROM own")
	for user, db := range map[string]*sql.DB{"the owner": owner, "the service": service} {
		const want = "table dblock_fence has a view in its place"
		if _, err := mysql.CheckSchema(t.Context(), db, ""); !errors.Is(err, dblock.ErrSchema) || !strings.Contains(err.Error(), want) {
			t.Errorf("a view, as %s: %v", user, err)
		}
	}
}

// TestUniqueIndexesOfOthersAreRefused: an insert with IGNORE or ON DUPLICATE KEY UPDATE takes a row
// that another unique index finds for its own. Of tables that have such inserts, none may have one.
func TestUniqueIndexesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	intoKeyed := regexp.MustCompile(`(?s)\bINTO (\w+).*\bON DUPLICATE KEY UPDATE\b|\bIGNORE INTO (\w+)|\b(?:REPLACE INTO|UPDATE IGNORE) (\w+)`)
	tables := map[string]bool{}
	for _, statement := range generatedStatements(t) {
		if m := intoKeyed.FindStringSubmatch(statement); m != nil {
			tables[m[1]+m[2]+m[3]] = true
		}
	}
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue // an insert names its key
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			_, service, exec := installed(t, kind, schema.MySQLServiceGrants)
			var want []string
			for _, table := range slices.Sorted(maps.Keys(tables)) {
				exec("ALTER TABLE " + table + " ADD COLUMN own INT, ADD UNIQUE INDEX own_index (own)")
				want = append(want, "table "+table+` has the unique index "own_index", by which a row takes the place of another: make it not unique`)
			}
			var wrong *dblock.SchemaError
			if _, err := mysql.CheckSchema(t.Context(), service, ""); !errors.As(err, &wrong) || !slices.Equal(wrong.Differences, want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

// inMode returns a connection with a sql_mode.
func inMode(t *testing.T, db *sql.DB, mode string) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.ExecContext(t.Context(), "SET sql_mode = '"+mode+"'"); err != nil {
		t.Fatal(err)
	}
	return conn
}

// installed makes a database with dblock's tables, and an account with some grants. exec runs a
// statement as the owner.
func installed(t *testing.T, kind devdb.Kind, grants func(database, account string) []string) (owner, service *sql.DB, exec func(string)) {
	t.Helper()
	dsn := testdb.DSN(t, kind)
	owner = openDSN(t, dsn)
	if _, err := migrations.Up(t.Context(), owner, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	exec = func(statement string) {
		t.Helper()
		if _, err := owner.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	cfg, err := mysqldriver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	user := cfg.DBName[max(0, len(cfg.DBName)-30):] + "_p"
	account := schema.QuoteMySQLAccount(user)
	exec("CREATE USER " + account + " IDENTIFIED BY 'Only-f0r-a-test'")
	t.Cleanup(func() { exec("DROP USER " + account) })
	for _, grant := range grants(cfg.DBName, user) {
		exec(grant)
	}
	cfg.User, cfg.Passwd = user, "Only-f0r-a-test"
	return owner, openDSN(t, cfg.FormatDSN()), exec
}
