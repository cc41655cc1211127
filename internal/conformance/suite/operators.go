package suite

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/mysqlfault"
	"github.com/dblock-go/dblock/internal/schema"
)

// EachGrantIsNeeded runs commands that do all that an operator does with some tables. They succeed with
// the documented grants, and are refused without any one of them.
func EachGrantIsNeeded(t *testing.T, kind devdb.Kind, db *sql.DB, name string, ofThese func(table string) bool, commands func() error) {
	t.Helper()
	if err := commands(); err != nil {
		t.Fatalf("with all grants: %v", err)
	}
	engine := schema.MySQL
	if kind == devdb.Postgres {
		engine = schema.Postgres
	}
	for _, table := range schema.Tables() {
		if !ofThese(table) {
			continue
		}
		for _, right := range schema.OperatorRights(engine, table) {
			change := func(text string) {
				t.Helper()
				if _, err := db.ExecContext(t.Context(), fmt.Sprintf(text, right, table, name)); err != nil {
					t.Fatal(err)
				}
			}
			change("REVOKE %s ON %s FROM %s")
			if err := commands(); err == nil || !strings.Contains(err.Error(), "permission denied") && !mysqlfault.IsDenied(err) {
				t.Errorf("without %s on %s: %v, want a refusal", right, table, err)
			}
			change("GRANT %s ON %s TO %s")
		}
	}
}

func OfStock(table string) bool {
	return slices.Contains([]string{"dblock_stock", "dblock_reservation", "dblock_adjustment", "dblock_quota"}, table)
}
