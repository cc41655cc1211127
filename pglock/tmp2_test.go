package pglock_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

func BenchmarkTwo(b *testing.B) {
	dsn := testdb.PostgresURL(b)
	pool, err := pgxpool.New(b.Context(), dsn)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	conn, _ := pool.Acquire(ctx)
	defer conn.Release()
	conn.Exec(ctx, "set plan_cache_mode=force_generic_plan")
	var q pgdb.Queries
	one := func(name, sql string, args ...any) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var x bool
				if err := conn.QueryRow(ctx, sql, args...).Scan(&x); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	one("bare", "SELECT pg_try_advisory_xact_lock($1)", 42)
	one("case", "SELECT CASE $2::int WHEN 0 THEN pg_try_advisory_xact_lock($1) ELSE pg_advisory_unlock($1) END", 42, 0)
	one("unnest", "SELECT pg_try_advisory_xact_lock(u) FROM unnest($1::bigint[]) u", []int64{42})
	one("selectunnest", "SELECT pg_try_advisory_xact_lock(unnest($1::bigint[]))", []int64{42})
	one("unnestpar", "SELECT CASE o WHEN 0 THEN pg_try_advisory_xact_lock(u) ELSE pg_advisory_unlock(u) END FROM (SELECT unnest($1::bigint[]) u, unnest($2::smallint[]) o) x", []int64{42}, []int16{0})
	b.Run("steps", func(b *testing.B) {
		for b.Loop() {
			q.SessionSteps(ctx, conn, []int64{42}, []int64{43}, []int16{0})
		}
	})
	b.Run("steps8", func(b *testing.B) {
		for b.Loop() {
			q.SessionSteps(ctx, conn, []int64{42}, []int64{43}, []int16{8})
		}
	})
}
