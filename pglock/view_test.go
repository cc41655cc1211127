package pglock

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/testdb"
)

// TestALookReadsItsTablesOnly: the look at a table before its rows are locked reads what the
// catalogs have of that table. The control is the same question without the fence (OFFSET 0).
func TestALookReadsItsTablesOnly(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE seat (id int PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`Seq Scan on pg_class|pg_class_relname_nsp_index`)
	readsAll := func(query string, args ...any) bool {
		rows, err := pool.Query(t.Context(), "EXPLAIN "+query, args...)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return all.MatchString(strings.Join(plan, "\n"))
	}
	if readsAll(tableFacts, "seat", "id") {
		t.Error("it reads a whole catalog")
	}
	if !readsAll(strings.ReplaceAll(tableFacts, "OFFSET 0", ""), "seat", "id") {
		t.Error("the control reads a part only")
	}
}
