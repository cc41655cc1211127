package migrations_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/migrations"
)

// TestBoundsOnTablesWithBadRows: version 11 keeps the rows of before. Those that are updated in
// place are mended, because the server checks each row that is updated. New bad rows are refused.
func TestBoundsOnTablesWithBadRows(t *testing.T) {
	each(t, func(e env) {
		e.toVersion(10)
		e.exec("INSERT INTO dblock_semaphore (lease_key, permits) VALUES ('none', 0), ('two', 2)")
		if e.engine == migrations.Postgres {
			e.exec(`INSERT INTO dblock_lease (lease_key, token, held_until) VALUES ('ever', 1, 'infinity'), ('never', 1, '-infinity'), ('free', 1, NULL)`)
			e.exec(`INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state, expires_at) VALUES ('hold', 's', 'b', 1, 1, 'infinity'), ('sold', 's', 'b', 1, 2, 'infinity')`)
			e.exec(`INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, enqueued_at, group_most, payload)
				SELECT gen_random_uuid(), 'q', 'k', 0, 1, a, n, '' FROM (VALUES ('infinity'::timestamptz, NULL::int), ('-infinity', 3), ('2020-01-01', 0)) x(a, n)`)
			e.exec(`INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority) VALUES ('infinity', gen_random_uuid(), 'q', 0)`)
		}
		e.up(migrations.Options{})
		if got := e.strings("SELECT lease_key FROM dblock_semaphore"); !slices.Equal(got, []string{"two"}) {
			e.Errorf("semaphores %v are left", got)
		}
		bad := []string{"INSERT INTO dblock_semaphore (lease_key, permits) VALUES ('none', 0)"}
		if e.engine == migrations.Postgres {
			for query, want := range map[string]string{
				"SELECT lease_key FROM dblock_lease WHERE held_until > now() + interval '99 years'":                  "ever",
				"SELECT lease_key FROM dblock_lease WHERE held_until = 'epoch'":                                      "never",
				"SELECT lease_key FROM dblock_lease WHERE held_until IS NULL":                                        "free",
				"SELECT reservation_key FROM dblock_reservation WHERE NOT isfinite(expires_at)":                      "sold",
				"SELECT string_agg(group_most::text, ' ' ORDER BY group_most) FROM dblock_queue_job":                 "1 3",
				"SELECT count(*)::text FROM dblock_queue_job WHERE isfinite(enqueued_at)":                            "3",
				"SELECT count(*)::text FROM dblock_queue_job WHERE enqueued_at = '2020-01-01'":                       "1",
				"SELECT count(*)::text FROM dblock_queue_scheduled WHERE NOT isfinite(run_at) AND retry IS NOT TRUE": "1",
			} {
				if got := e.strings(query); !slices.Equal(got, []string{want}) {
					e.Errorf("%s: %q, want %q", query, got, want)
				}
			}
			e.exec("UPDATE dblock_queue_job SET attempt = attempt + 1")
			e.exec("DELETE FROM dblock_queue_scheduled")
			bad = append(bad, "UPDATE dblock_lease SET held_until = '-infinity'", "UPDATE dblock_queue_job SET enqueued_at = 'infinity'",
				"UPDATE dblock_queue_job SET group_most = 0", "INSERT INTO dblock_queue_ready VALUES ('q', 0, 'infinity', gen_random_uuid())",
				"INSERT INTO dblock_queue_scheduled VALUES ('-infinity', gen_random_uuid(), 'q', 0)",
				"UPDATE dblock_reservation SET expires_at = 'infinity' WHERE state = 1")
		}
		for _, statement := range bad {
			_, err := e.db.ExecContext(e.Context(), statement)
			var pg *pgconn.PgError
			if err == nil || errors.As(err, &pg) && pg.Code != "23514" || pg == nil && !strings.Contains(strings.ToLower(err.Error()), "constraint") {
				e.Errorf("%s: %v, want a refusal by a CHECK", statement, err)
			}
		}
		e.wantApplied(migrations.Options{})
	})
}

// TestAValidatedCheckIsNoDifference: an owner may have Postgres look at the rows of before.
func TestAValidatedCheckIsNoDifference(t *testing.T) {
	each(t, func(e env) {
		e.up(migrations.Options{})
		if e.engine == migrations.Postgres {
			e.exec("ALTER TABLE dblock_lease VALIDATE CONSTRAINT dblock_lease_finite")
		}
		e.wantApplied(migrations.Options{})
	})
}
