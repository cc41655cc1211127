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

// TestALookIsNotCompiled: the server expects little work of it, however many partitions other
// tables have. It compiles statements of a cost of 100,000.
func TestALookIsNotCompiled(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	for _, statement := range []string{
		"CREATE TABLE seat (id int PRIMARY KEY)",
		"CREATE TABLE other (id int) PARTITION BY LIST (id)",
		"DO $$ BEGIN FOR n IN 1..400 LOOP EXECUTE format('CREATE TABLE p%s PARTITION OF other FOR VALUES IN (%s)', n, n); END LOOP; END $$",
		"ANALYZE pg_inherits", "ANALYZE pg_class",
	} {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	var plan []struct{ Plan map[string]any }
	if err := pool.QueryRow(t.Context(), "EXPLAIN (FORMAT JSON) "+tableFacts, "seat", "id").Scan(&plan); err != nil {
		t.Fatal(err)
	}
	if cost, _ := plan[0].Plan["Total Cost"].(float64); cost == 0 || cost > 20_000 {
		t.Errorf("the cost is %v", plan[0].Plan["Total Cost"])
	}
}
