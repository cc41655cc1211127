package pglock

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
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
	if readsAll(look(`"seat"`), "seat", "id") {
		t.Error("it reads a whole catalog")
	}
	if !readsAll(strings.ReplaceAll(look(`"seat"`), "OFFSET 0", ""), "seat", "id") {
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
	if err := pool.QueryRow(t.Context(), "EXPLAIN (FORMAT JSON) "+look(`"seat"`), "seat", "id").Scan(&plan); err != nil {
		t.Fatal(err)
	}
	if cost, _ := plan[0].Plan["Total Cost"].(float64); cost == 0 || cost > 20_000 {
		t.Errorf("the cost is %v", plan[0].Plan["Total Cost"])
	}
}

// TestATableThatBecomesAViewMeanwhile: a migration that is under way puts a view in the place of a
// table. The server locks no rows of that view. A claim that waits for the migration is refused,
// and so is one whose snapshot is older. Both have claimed rows of the table before.
func TestATableThatBecomesAViewMeanwhile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		level pgx.TxIsoLevel
		want  error
	}{
		"a claim that waits": {pgx.ReadCommitted, dblock.ErrUnsupported},
		"an older snapshot":  {pgx.RepeatableRead, dblock.ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := testdb.Postgres(t)
			begin := func(level pgx.TxIsoLevel) pgx.Tx {
				tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				if err != nil {
					t.Fatal(err)
				}
				return tx
			}
			exec := func(db Tx, statement string) {
				t.Helper()
				if _, err := db.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatal(err)
				}
			}
			claim := func(tx pgx.Tx) error {
				_, err := Claim(t.Context(), tx, dblock.RowLock{}, 1, pgx.RowTo[int32], "SELECT id FROM seat ORDER BY id")
				return err
			}
			if _, err := pool.Exec(t.Context(), "CREATE TABLE seat AS SELECT 1 AS id; CREATE TABLE more AS SELECT 2 AS id"); err != nil {
				t.Fatal(err)
			}
			claims, migration := begin(c.level), begin(pgx.ReadCommitted)
			exec(claims, "SAVEPOINT s")
			if err := claim(claims); err != nil {
				t.Fatal(err)
			}
			exec(claims, "ROLLBACK TO s") // which lets go of the table
			exec(migration, "ALTER TABLE seat RENAME TO old; CREATE VIEW seat AS SELECT id FROM old UNION ALL SELECT id FROM more")
			got := make(chan error, 1)
			go func() { got <- claim(claims) }()
			for waits := 0; waits == 0; {
				const waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
				if err := pool.QueryRow(t.Context(), waiting).Scan(&waits); err != nil {
					t.Fatal(err)
				}
			}
			if err := migration.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-got; !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if err := claims.Rollback(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
