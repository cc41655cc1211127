package pglock_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

func BenchmarkTmp(b *testing.B) {
	dsn := testdb.PostgresURL(b)
	pool, err := pgxpool.New(b.Context(), dsn)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	a, err := pglock.NewSession(b.Context(), pool, pglock.SessionOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close(context.Background())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	conn, _ := pool.Acquire(ctx)
	defer conn.Release()
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			conn.Exec(ctx, "SELECT pg_advisory_lock($1)", 42)
			var had bool
			conn.QueryRow(ctx, "SELECT pg_advisory_unlock($1)", 42).Scan(&had)
		}
	})
	b.Run("session", func(b *testing.B) {
		for b.Loop() {
			l, err := a.Acquire(ctx, "k")
			if err != nil {
				b.Fatal(err)
			}
			l.Release(ctx)
		}
	})
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			conn.Exec(ctx, "SELECT pg_advisory_lock($1)", 42)
			var had bool
			conn.QueryRow(ctx, "SELECT pg_advisory_unlock($1)", 42).Scan(&had)
		}
	})
	b.Run("session", func(b *testing.B) {
		for b.Loop() {
			l, err := a.Acquire(ctx, "k")
			if err != nil {
				b.Fatal(err)
			}
			l.Release(ctx)
		}
	})
}
