package mysql_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestWhatAUserDoesNotSeeIsNotMissing: a service that has rights on some of dblock's tables alone
// passes the check. What those tables lack is an error.
func TestWhatAUserDoesNotSeeIsNotMissing(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue // every user sees its catalogs
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			admin, service, exec := installed(t, kind, func(_, user string) (grants []string) {
				for _, right := range []string{"SELECT ON dblock_schema_version", "SELECT, INSERT, UPDATE, DELETE ON dblock_lease",
					"SELECT ON dblock_reservation", "SELECT (sku) ON dblock_stock"} {
					grants = append(grants, "GRANT "+right+" TO "+schema.QuoteMySQLAccount(user))
				}
				return grants
			})
			var database string
			if err := admin.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&database); err != nil {
				t.Fatal(err)
			}
			if _, err := mysql.CheckSchema(ctx, service, ""); err != nil {
				t.Errorf("as a user of a few rights: %v", err)
			}
			if _, err := mysql.CheckSchema(ctx, service, database); err != nil {
				t.Errorf("with the database's name: %v", err)
			}
			exec("ALTER TABLE dblock_lease DROP COLUMN shared")
			exec("ALTER TABLE dblock_quota DROP CONSTRAINT dblock_quota_used")
			_, err := mysql.CheckSchema(ctx, service, "")
			var wrong *dblock.SchemaError
			if !errors.As(err, &wrong) || len(wrong.Differences) != 1 || !strings.Contains(wrong.Differences[0], "dblock_lease.shared") {
				t.Errorf("a column of a table that is seen is missing: %v", err)
			}
			_, err = mysql.CheckSchema(ctx, admin, "")
			if !errors.As(err, &wrong) || len(wrong.Differences) != 2 {
				t.Errorf("as the owner, a column and a CHECK are missing: %v", err)
			}
		})
	}
}

func openDSN(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
