package pglock

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

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

// TestAMigrationBesideAClaim: a claim waits for a migration that is under way. If that puts a view
// in the place of the table, the claim is refused: the server locks no rows of that view. So it is
// if its snapshot is older. Else the migration goes on, and then the claim. All have claimed rows
// of the table before.
func TestAMigrationBesideAClaim(t *testing.T) {
	t.Parallel()
	const view = "ALTER TABLE %[1]s RENAME TO old; CREATE VIEW %[1]s AS SELECT id FROM old UNION ALL SELECT id FROM more"
	const schema = "LOCK TABLE host.seat IN EXCLUSIVE MODE; ALTER SCHEMA host RENAME TO old; CREATE SCHEMA host; " +
		"CREATE VIEW host.seat AS SELECT id FROM old.seat UNION ALL SELECT id FROM more"
	for name, c := range map[string]struct {
		table       string
		level       pgx.TxIsoLevel
		first, then string
		want        error
	}{
		"a view":                    {"seat", pgx.ReadCommitted, view, "", dblock.ErrUnsupported},
		"a view of an old snapshot": {"seat", pgx.RepeatableRead, view, "", dblock.ErrConflict},
		"a table named base":        {"base", pgx.ReadCommitted, view, "", dblock.ErrUnsupported},
		"a table named level":       {"level", pgx.ReadCommitted, view, "", dblock.ErrUnsupported},
		"a schema":                  {"host.seat", pgx.ReadCommitted, schema, "", dblock.ErrUnsupported},
		"a column":                  {"seat", pgx.ReadCommitted, "LOCK TABLE %[1]s IN EXCLUSIVE MODE", "ALTER TABLE %[1]s ADD COLUMN more int", nil},
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
				if strings.Contains(statement, "%[1]s") {
					statement = fmt.Sprintf(statement, c.table)
				}
				if _, err := db.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatal(err)
				}
			}
			claim := func(tx pgx.Tx) error {
				_, err := Claim(t.Context(), tx, dblock.RowLock{}, 1, pgx.RowTo[int32], "SELECT id FROM "+c.table+" ORDER BY id")
				return err
			}
			setUp := begin(pgx.ReadCommitted)
			exec(setUp, "CREATE SCHEMA host; CREATE TABLE %[1]s AS SELECT 1 AS id; CREATE TABLE more AS SELECT 2 AS id")
			if err := setUp.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			claims, migration := begin(c.level), begin(pgx.ReadCommitted)
			exec(claims, "SAVEPOINT s")
			if err := claim(claims); err != nil {
				t.Fatal(err)
			}
			exec(claims, "ROLLBACK TO s") // which lets go of the table
			exec(migration, c.first)
			got := make(chan error, 1)
			go func() { got <- claim(claims) }()
			for waits := 0; waits == 0; {
				const waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
				if err := pool.QueryRow(t.Context(), waiting).Scan(&waits); err != nil {
					t.Fatal(err)
				}
			}
			exec(migration, c.then)
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

// TestALockedTableIsWaitedForInTime: another transaction has the table itself locked. What a call
// says of its wait holds, also for the first one of a connection, and whatever lock_timeout the
// host has set.
func TestALockedTableIsWaitedForInTime(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE seat AS SELECT 1 AS id UNION SELECT 2"); err != nil {
		t.Fatal(err)
	}
	host, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := host.Exec(t.Context(), "LOCK TABLE seat"); err != nil {
		t.Fatal(err)
	}
	lock := func(timeout string, wait dblock.TxWait, during func(conn *pgx.Conn)) error {
		conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(t.Context()) }()
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = '"+timeout+"'"); err != nil {
			t.Fatal(err)
		}
		during(conn)
		_, err = LockRows(t.Context(), tx, "seat", "id", []int{1, 2}, dblock.RowLock{Wait: wait})
		if _, failed := tx.Exec(t.Context(), "SELECT 1"); failed != nil {
			t.Errorf("wait %v, lock_timeout %s: the transaction is of no use any more: %v", wait, timeout, failed)
		}
		return err
	}
	alone := func(*pgx.Conn) {}
	for _, timeout := range []string{"0", "100ms"} {
		for range 2 {
			if err := lock(timeout, dblock.WaitAtMost(200*time.Millisecond), alone); !errors.Is(err, dblock.ErrNotAcquired) {
				t.Errorf("a wait of 200 ms, lock_timeout %s: %v", timeout, err)
			}
		}
	}
	if err := lock("100ms", dblock.NoWait(), alone); !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("no wait: %v", err)
	}
	err = lock("10ms", dblock.WaitForContext(), func(conn *pgx.Conn) {
		go func() {
			const waits = "SELECT count(*) FROM pg_locks WHERE pid = $1 AND NOT granted AND waitstart < now() - interval '200 ms'"
			for n := 0; n == 0; {
				if err := pool.QueryRow(t.Context(), waits, conn.PgConn().PID()).Scan(&n); err != nil {
					t.Error(err)
					break
				}
			}
			_ = host.Rollback(t.Context())
		}()
	})
	if err != nil {
		t.Errorf("a wait past lock_timeout: %v", err)
	}
}
