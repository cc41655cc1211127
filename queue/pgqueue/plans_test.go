package pgqueue

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestPlans: with many jobs, and with statistics of empty tables, statements find their rows by a
// key, and a claim takes the first ones of its index without a sort.
func TestPlans(t *testing.T) {
	t.Parallel()
	for _, analyzed := range []bool{false, true} {
		t.Run(fmt.Sprintf("analyzed=%v", analyzed), func(t *testing.T) {
			t.Parallel()
			host := testdb.MigratedPostgres(t)
			d, err := open(t.Context(), host, "")
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			fill := []string{
				"ALTER TABLE dblock_queue_ready SET (autovacuum_enabled = off)", "ALTER TABLE dblock_queue_job SET (autovacuum_enabled = off)",
				`INSERT INTO dblock_queue_ready (queue, priority, job_id) SELECT 'default', n % 3, gen_random_uuid() FROM generate_series(1, 100000) n`,
				`INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, payload)
				 SELECT r.job_id, 'default', 'k', 0, 1, '' FROM dblock_queue_ready r LIMIT 20000`,
				`INSERT INTO dblock_queue_key (queue, group_key, most, taken) SELECT 'default', n::text, 1, 1 FROM generate_series(1, 20000) n`,
				`INSERT INTO dblock_queue_unique (queue, unique_key, job_id) SELECT 'default', n::text, gen_random_uuid() FROM generate_series(1, 20000) n`,
				`INSERT INTO dblock_queue_blocked (queue, group_key, seq, job_id, priority)
				 SELECT 'default', (n % 1000)::text, n, gen_random_uuid(), 0 FROM generate_series(1, 20000) n`,
			}
			fill = append(fill, fillTheRest(analyzed)...)
			if analyzed {
				fill = append(fill, "ANALYZE dblock_queue_ready", "ANALYZE dblock_queue_job", "ANALYZE dblock_queue_key",
					"ANALYZE dblock_queue_unique", "ANALYZE dblock_queue_blocked")
			}
			for _, statement := range fill {
				if _, err := host.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			planAll(t, d)
			const id, ids = "'00000000-0000-0000-0000-000000000001'", "'{00000000-0000-0000-0000-000000000001}'"
			claim := plan(t, d, d.SQL(pgdb.ClaimJobs), "2000", "'{-32768,0,1}'", "'{-infinity,2020-01-01,-infinity}'", "'{-1,0,32767}'", "'default'", "'{}'", id, "1", "500", id)
			if !strings.Contains(claim, "Index Scan using dblock_queue_ready_pkey") && !strings.Contains(claim, "Index Only Scan using dblock_queue_ready_pkey") {
				t.Errorf("the claim does not read its index:\n%s", claim)
			}
			for name, plan := range map[string]string{
				"claim": claim, "finish": plan(t, d, d.SQL(pgdb.FinishJobs), ids, id, ids, ids),
				"defer": plan(t, d, d.SQL(pgdb.RescheduleJobs), ids, id, ids, ids, "'{1}'", "'{x}'", "'{0}'", "'{now}'", "'{true}'"),
				"bury":  plan(t, d, d.SQL(pgdb.DiscardJobs), ids, id, ids, ids, "'{1}'", "'{x}'"),

				"unique": plan(t, d, d.SQL(pgdb.FreeUnique), ids, id, ids, ids), "lock": plan(t, d, d.SQL(pgdb.LockGroups), ids),
				"free": plan(t, d, d.SQL(pgdb.FreeGroupSlots), ids, id, ids, ids), "admit": plan(t, d, d.SQL(pgdb.AdmitJobs), ids, id, ids, ids),
				"open": plan(t, d, pgdb.OpenGroups, "'{a}'", "'{a}'", "'{1}'", "'{f}'", "false"), "place": plan(t, d, pgdb.AssignJobs, ids, "'{a}'", "'{a}'", "'{1}'"),
				"holders": plan(t, d, pgdb.KeyHolders, "'{a}'", "'{a}'"),
				"keyed":   plan(t, d, pgdb.EnqueueKeyed, ids, "'{a}'", "'{a}'", "'{1}'", "'{1}'", "'{0}'", "'{x}'", "'{a}'", "'{a}'", "'{1}'", "'c'"),
			} {
				for _, bad := range []string{"Seq Scan on dblock_queue_", "Hash Join", "Merge Join"} {
					if strings.Contains(plan, bad) {
						t.Errorf("%s:\n%s", name, plan)
					}
				}
				if name == "claim" && strings.Contains(plan, "Sort") {
					t.Errorf("%s sorts:\n%s", name, plan)
				}
			}
		})
	}
}

// TestPlansInHandlersTransactions: the sessions of the host's pool keep plans of tables that were
// empty, and may use them. A job's end in a handler's transaction is planned for what the tables
// are now. The control is the same without that.
func TestPlansInHandlersTransactions(t *testing.T) {
	t.Parallel()
	host := testdb.MigratedPostgres(t)
	d, err := open(t.Context(), host, "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	conn, err := host.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	stale := 0
	for _, end := range stalePlans(t, d, host, conn) {
		for _, first := range []string{"select 1", freshPlans} {
			simple(t, conn, "begin")
			simple(t, conn, first)
			plan := simple(t, conn, "EXPLAIN (COSTS OFF) EXECUTE "+end)
			simple(t, conn, "rollback")
			switch {
			case first == freshPlans && readsAll(plan):
				t.Errorf("%s:\n%s", end, plan)
			case readsAll(plan):
				stale++
			}
		}
	}
	if stale == 0 {
		t.Error("no plan of empty tables reads a table whole: the test shows nothing")
	}
}

// stalePlans has a session keep plans of all that a job's end takes, when the tables are empty, and
// fills these. Another session does that: one that is busy for so long misses what others change in
// the server's catalogs, and then makes all its plans anew.
func stalePlans(t *testing.T, d *database, host *pgxpool.Pool, conn *pgxpool.Conn) (prepared []string) {
	t.Helper()
	const id, ids = "'00000000-0000-0000-0000-000000000001'", "'{00000000-0000-0000-0000-000000000001}'"
	args := func(a ...string) string { return strings.Join(a, ", ") }
	simple(t, conn, "set plan_cache_mode = force_generic_plan") // as it would be after five times, by the server's choice
	for _, table := range []string{"job", "unique", "key", "blocked", "claim"} {
		simple(t, conn, "ALTER TABLE dblock_queue_"+table+" SET (autovacuum_enabled = off)")
	}
	for statement, with := range map[string]string{
		d.SQL(pgdb.KeepFinished): args(ids, ids, "'{1}'", "'{1}'", "'{x}'", ids, id), d.SQL(pgdb.FinishJobs): args(ids, id, ids, ids), d.SQL(pgdb.FreeUnique): args(ids, id, ids, ids),
		d.SQL(pgdb.LockGroups): ids, d.SQL(pgdb.FreeGroupSlots): args(ids, id, ids, ids), d.SQL(pgdb.AdmitJobs): args(ids, id, ids, ids),
	} {
		name := fmt.Sprintf("suite%d", len(prepared))
		prepared = append(prepared, name+"("+with+")")
		simple(t, conn, "PREPARE "+name+" AS "+statement)
		simple(t, conn, "EXPLAIN EXECUTE "+name+"("+with+")")
	}
	for _, statement := range []string{
		`INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, payload)
		 SELECT gen_random_uuid(), 'default', 'k', 0, 1, '' FROM generate_series(1, 20000) n`,
		`INSERT INTO dblock_queue_key (queue, group_key, most, taken) SELECT 'default', n::text, 1, 1 FROM generate_series(1, 20000) n`,
		`INSERT INTO dblock_queue_unique (queue, unique_key, job_id) SELECT 'default', n::text, gen_random_uuid() FROM generate_series(1, 20000) n`,
		`INSERT INTO dblock_queue_blocked (queue, group_key, seq, job_id, priority)
		 SELECT 'default', (n % 1000)::text, n, gen_random_uuid(), 0 FROM generate_series(1, 20000) n`,
	} {
		if _, err := host.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%v in %s", err, statement)
		}
	}
	return prepared
}

// simple runs a statement as text, and returns its rows of text.
func simple(t *testing.T, conn *pgxpool.Conn, statement string) string {
	t.Helper()
	results, err := conn.Conn().PgConn().Exec(t.Context(), statement).ReadAll()
	if err != nil {
		t.Fatalf("%v in %s", err, statement)
	}
	var lines []string
	for _, row := range results[0].Rows {
		lines = append(lines, string(row[0]))
	}
	return strings.Join(lines, "\n")
}

// readsAll reports that a plan reads one of the large tables whole. There are few claims.
func readsAll(plan string) bool {
	for _, table := range []string{"job", "unique", "key", "blocked"} {
		if strings.Contains(plan, "Seq Scan on dblock_queue_"+table+" ") {
			return true
		}
	}
	return false
}

// plan is how the server runs a statement of the worker's, whatever its arguments.
func plan(t *testing.T, d *database, query string, args ...string) string {
	t.Helper()
	var lines []string
	err := pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "PREPARE suite AS "+query, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		with := ""
		if len(args) > 0 {
			with = "(" + strings.Join(args, ", ") + ")"
		}
		rows, err := tx.Query(context.Background(), "EXPLAIN (COSTS OFF) EXECUTE suite"+with, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		if lines, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		_, err = tx.Exec(t.Context(), "DEALLOCATE suite", pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
