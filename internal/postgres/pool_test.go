package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/testdb"
)

type tenant struct{}

// TestHooks: hooks that need a value of the caller's context panic without it.
func TestHooks(t *testing.T) {
	t.Parallel()
	asked := func(ctx context.Context) { _ = ctx.Value(tenant{}).(string) }
	for name, set := range map[string]func(*pgxpool.Config){
		"PrepareConn": func(cfg *pgxpool.Config) {
			cfg.PrepareConn = func(ctx context.Context, _ *pgx.Conn) (bool, error) { asked(ctx); return true, nil }
		},
		"BeforeConnect": func(cfg *pgxpool.Config) {
			cfg.BeforeConnect = func(ctx context.Context, _ *pgx.ConnConfig) error { asked(ctx); return nil }
		},
		"AfterConnect": func(cfg *pgxpool.Config) {
			cfg.AfterConnect = func(ctx context.Context, _ *pgx.Conn) error { asked(ctx); return nil }
		},
	} {
		cfg, err := pgxpool.ParseConfig(testdb.PostgresURL(t))
		require.NoError(t, err)
		set(cfg)
		host, err := pgxpool.NewWithConfig(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(host.Close)
		own, err := postgres.OpenPool(t.Context(), host, 1, nil)
		if name == "PrepareConn" {
			require.NoError(t, err)
			own.Close()
			continue
		}
		assert.ErrorContains(t, err, "the pool's "+name)
	}
}

// TestSettings: dblock's own connections do not have what would make a statement mean something else.
func TestSettings(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*pgxpool.Config){
		"open transaction": func(cfg *pgxpool.Config) {
			cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, "BEGIN")
				return err
			}
		},
		"client_encoding = LATIN1": func(cfg *pgxpool.Config) {
			cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, "SET client_encoding = 'LATIN1'")
				return err
			}
		},
		"": func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec },
	} {
		cfg, err := pgxpool.ParseConfig(testdb.PostgresURL(t))
		require.NoError(t, err)
		set(cfg)
		host, err := pgxpool.NewWithConfig(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(host.Close)
		own, err := postgres.OpenPool(t.Context(), host, 1, nil)
		if name != "" {
			assert.ErrorContains(t, err, name)
			continue
		}
		require.NoError(t, err)
		t.Cleanup(own.Close)
		assert.Equal(t, pgx.QueryExecModeExec, own.Config().ConnConfig.DefaultQueryExecMode)
		assert.Equal(t, pgx.QueryExecModeDescribeExec, host.Config().ConnConfig.DefaultQueryExecMode)
	}
}
