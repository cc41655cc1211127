package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/migrations"
)

const password = "Only-f0r-a-test"

// user makes a user without any right and returns a database handle of it. Users are the server's,
// so the name is made from that of the test's own database.
func (e env) user(suffix string) (name string, db *sql.DB) {
	e.Helper()
	if e.engine == migrations.Postgres {
		var database string
		e.must(e.db.QueryRowContext(e.Context(), "SELECT current_database()").Scan(&database))
		name = database + suffix
		quoted := schema.QuotePostgres(name)
		e.exec("CREATE ROLE " + quoted + " LOGIN PASSWORD '" + password + "'")
		e.afterwards("DROP OWNED BY "+quoted, "DROP ROLE "+quoted)
		u, err := url.Parse(e.dsn)
		e.must(err)
		u.User = url.UserPassword(name, password)
		return name, e.open(u.String())
	}
	// MySQL allows 32 characters, at the end of which the databases differ.
	name = e.in("") + suffix
	name = name[max(0, len(name)-32):]
	e.exec("CREATE USER '" + name + "'@'%' IDENTIFIED BY '" + password + "'")
	e.afterwards("DROP USER '" + name + "'@'%'")
	config, err := devdb.ParseMySQL(e.dsn)
	e.must(err)
	config.User, config.Passwd = name, password
	if suffix == migrator {
		// Without a right on the database no user may connect to it: the option names it.
		config.DBName = ""
	}
	return name, e.open(config.FormatDSN())
}

const (
	migrator = "_m"
	service  = "_s"
)

func (e env) afterwards(statements ...string) {
	e.Cleanup(func() {
		for _, s := range statements {
			if _, err := e.db.ExecContext(context.Background(), s); err != nil {
				e.Errorf("%s: %v", s, err)
			}
		}
	})
}

func (e env) grant(statements []string) {
	e.Helper()
	for _, s := range statements {
		e.exec(s)
	}
}

func TestMigrationGrantsAreEnough(t *testing.T) {
	each(t, func(e env) {
		role, db := e.user(migrator)
		opts := migrations.Options{Schema: e.in("")}
		grants := schema.MySQLMigrationGrants(opts.Schema, role)
		if e.engine == migrations.Postgres {
			opts.Schema = "app"
			e.exec("CREATE SCHEMA app")
			grants = schema.PostgresMigrationGrants("app", role)
		}
		// The control: without them it doesn't work.
		if _, err := migrations.Up(t.Context(), db, opts); err == nil {
			t.Error("Up worked without the grants")
		}
		e.grant(grants)
		e.upAndDown(db, opts)
	})
}

// TestEachMigrationGrantIsNeeded takes each right away by itself: Up, or DownTo and Up, fail then,
// and go on once it is back.
func TestEachMigrationGrantIsNeeded(t *testing.T) {
	each(t, func(e env) {
		role, db := e.user(migrator)
		opts := migrations.Options{Schema: e.in("")}
		grants := schema.MySQLMigrationGrants(opts.Schema, role)
		if e.engine == migrations.Postgres {
			opts.Schema = "app"
			e.exec("CREATE SCHEMA app")
			grants = schema.PostgresMigrationGrants("app", role)
		}
		e.grant(grants)
		rights, on, _ := strings.Cut(strings.TrimPrefix(grants[0], "GRANT "), " ON ")
		for _, right := range strings.Split(rights, ", ") {
			e.exec("REVOKE " + right + " ON " + strings.Replace(on, " TO ", " FROM ", 1))
			_, err := migrations.Up(t.Context(), db, opts)
			if err == nil {
				_, err = migrations.DownTo(t.Context(), db, 0, opts)
			}
			if err == nil {
				t.Errorf("Up and DownTo work without %s", right)
			}
			e.grant(grants)
			e.upAndDown(db, opts)
			_, err = migrations.DownTo(t.Context(), db, 0, opts)
			e.must(err)
		}
	})
}

func (e env) upAndDown(db *sql.DB, opts migrations.Options) {
	e.Helper()
	_, err := migrations.Up(e.Context(), db, opts)
	e.must(err)
	_, err = migrations.DownTo(e.Context(), db, 0, opts)
	e.must(err)
	_, err = migrations.Up(e.Context(), db, opts)
	e.must(err)
	e.wantTables(opts.Schema, all())
}

func TestCreateSchemaGrantsAreEnough(t *testing.T) {
	each(t, func(e env) {
		if e.engine != migrations.Postgres {
			return // Up creates no database
		}
		role, db := e.user(migrator)
		opts := migrations.Options{Schema: "app"}
		if _, err := migrations.Up(t.Context(), db, opts); err == nil || !strings.Contains(err.Error(), "schema app") {
			t.Errorf("without the grants Up got %v, want an error that names the schema", err)
		}
		var database string
		e.must(e.db.QueryRowContext(t.Context(), "SELECT current_database()").Scan(&database))
		e.grant(schema.PostgresCreateSchemaGrants(database, role))
		e.upAndDown(db, opts)
	})
}

// What the engines do with these rights is tested there; here: that they are no more than was
// meant.
func TestServiceGrants(t *testing.T) {
	each(t, func(e env) {
		opts := migrations.Options{Schema: e.in("")}
		e.up(opts)
		role, db := e.user(service)
		grants, account := schema.MySQLServiceGrants(opts.Schema, role), schema.QuoteMySQLAccount(role)
		if e.engine == migrations.Postgres {
			account = schema.QuotePostgres(role)
			grants = schema.PostgresServiceGrants(opts.Schema, role)
		}
		e.grant(grants)
		list, err := migrations.Status(t.Context(), db, opts)
		if err != nil || !list[0].Applied {
			t.Errorf("the service can't see the version: %v, %v", list, err)
		}
		table := opts.Schema + ".dblock_schema_version"
		e.grant([]string{"REVOKE SELECT ON " + table + " FROM " + account})
		if _, err := migrations.Status(t.Context(), db, opts); !errors.Is(err, dblock.ErrPermission) {
			t.Errorf("without the grant Status got %v, want ErrPermission", err)
		}
		e.grant([]string{"GRANT SELECT ON " + table + " TO " + account})
		if done, err := migrations.Up(t.Context(), db, opts); err != nil || len(done) > 0 {
			t.Errorf("Up with nothing to do, by the service: %v, %v", done, err)
		}
		for _, table := range schema.Tables() {
			lock := " FOR UPDATE" // which takes the right to update
			if !slices.Contains(schema.Rights(string(e.engine), table), "UPDATE") {
				lock = ""
			}
			_, err := db.ExecContext(t.Context(), "SELECT * FROM "+table+lock)
			e.must(err)
		}
		for _, forbidden := range []string{
			"DELETE FROM dblock_stock", "UPDATE dblock_adjustment SET sku = sku", "DELETE FROM dblock_adjustment", "DROP TABLE dblock_stock", "CREATE TABLE dblock_more (id int)", "CREATE TEMPORARY TABLE dblock_lease (id int)",
			"INSERT INTO dblock_schema_version (version_id, is_applied) VALUES (2, true)",
		} {
			// Every role of Postgres may create temporary tables, and before version 15 tables in
			// the schema public.
			if strings.HasPrefix(forbidden, "CREATE") && e.engine == migrations.Postgres {
				continue
			}
			if _, err := db.ExecContext(t.Context(), forbidden); err == nil {
				t.Errorf("the service may %s", forbidden)
			}
		}
	})
}
