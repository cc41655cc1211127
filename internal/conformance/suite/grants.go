package suite

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/schema"
)

// ServiceUser makes a user of a database with the grants that are documented for a service, and returns its DSN.
func ServiceUser(t *testing.T, kind devdb.Kind, dsn string, db *sql.DB) string {
	t.Helper()
	as, _ := GrantedUser(t, kind, dsn, db, schema.PostgresServiceGrants, schema.MySQLServiceGrants)
	return as
}

// GrantedUser makes a user of a database with the grants of its engine, and returns its DSN and its quoted name.
func GrantedUser(t *testing.T, kind devdb.Kind, dsn string, db *sql.DB, postgres, others func(in, user string) []string) (as, name string) {
	t.Helper()
	exec := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%v in %s", err, statement)
		}
	}
	if kind == devdb.Postgres {
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		role := "service_of_" + strings.TrimPrefix(u.Path, "/")
		exec("CREATE ROLE " + role + " LOGIN PASSWORD 'secret'")
		for _, grant := range postgres("public", role) {
			exec(grant)
		}
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			_, _ = db.ExecContext(ctx, "DROP OWNED BY "+role)
			_, _ = db.ExecContext(ctx, "DROP ROLE "+role)
		})
		u.User = url.UserPassword(role, "secret")
		return u.String(), role
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	user := "svc_" + cfg.DBName[max(0, len(cfg.DBName)-20):]
	exec("CREATE USER '" + user + "'@'%' IDENTIFIED BY 'secret'")
	for _, grant := range others(cfg.DBName, user) {
		exec(grant)
	}
	t.Cleanup(func() { _, _ = db.ExecContext(context.WithoutCancel(t.Context()), "DROP USER '"+user+"'@'%'") })
	cfg.User, cfg.Passwd = user, "secret"
	return cfg.FormatDSN(), schema.QuoteMySQLAccount(user)
}
