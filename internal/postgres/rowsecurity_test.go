package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestRowSecurityIsRefused: row security hides rows from a service, whose reads then say that they
// do not exist. The owner and a user with BYPASSRLS see all rows.
func TestRowSecurityIsRefused(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.MigratedPostgres(t), t.Context()
	role := pool.Config().ConnConfig.Database + "_service"
	conn := service(t, pool, role, schema.PostgresServiceGrants("public", role)...)
	exec := func(statement string) {
		t.Helper()
		if _, err := pool.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("INSERT INTO dblock_stock (sku, available) VALUES ('sale', 1)")
	rows := func() (n int) {
		t.Helper()
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM dblock_stock", pgx.QueryExecModeSimpleProtocol).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if _, err := postgres.RequireSchema(ctx, conn, "public"); err != nil || rows() != 1 {
		t.Errorf("the control: %v", err)
	}
	exec("ALTER TABLE dblock_stock ENABLE ROW LEVEL SECURITY")
	var wrong *dblock.SchemaError
	if _, err := postgres.RequireSchema(ctx, conn, "public"); rows() != 0 || !errors.As(err, &wrong) || len(wrong.Differences) != 1 ||
		!strings.HasPrefix(wrong.Differences[0], "table dblock_stock has row security") {
		t.Errorf("rows are hidden: %v", err)
	}
	if _, err := postgres.RequireSchema(ctx, pool, "public"); err != nil {
		t.Errorf("the owner: %v", err)
	}
	exec("ALTER ROLE " + role + " BYPASSRLS")
	if _, err := postgres.RequireSchema(ctx, conn, "public"); err != nil || rows() != 1 {
		t.Errorf("with BYPASSRLS: %v", err)
	}
}
