package postgres_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
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

// TestSettings: dblock's own connections do not have what would make a statement mean something
// else.
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

// TestClientsThatAreGone cuts off clients whose statements wait for a table, and lets no request to
// cancel through. The server ends the statement of dblock's own connection. The control is the
// statement of the host's connection, which waits on.
func TestClientsThatAreGone(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(testdb.PostgresURL(t))
	require.NoError(t, err)
	open := func(cfg *pgxpool.Config) *pgxpool.Pool {
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	other := open(cfg.Copy())
	var dialer faultconn.Dialer
	cfg.ConnConfig.DialFunc = dialer.DialContext
	cfg.ConnConfig.RuntimeParams["client_connection_check_interval"] = "0" // the server's default
	host := open(cfg)
	own, err := postgres.OpenPool(t.Context(), host, 1, nil)
	require.NoError(t, err)
	t.Cleanup(own.Close)

	_, err = other.Exec(t.Context(), "CREATE TABLE locked ()")
	require.NoError(t, err)
	tx, err := other.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE locked")
	require.NoError(t, err)
	waiting := func() (queries []string) {
		rows, err := other.Query(t.Context(), "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		require.NoError(t, err)
		queries, err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return queries
	}
	until := func(n int) {
		require.Eventually(t, func() bool { return len(waiting()) == n }, time.Minute, 10*time.Millisecond, "%d statements wait", n)
	}
	var clients sync.WaitGroup
	clients.Go(func() { _, err := own.Exec(t.Context(), "TABLE locked -- own"); assert.Error(t, err) })
	clients.Go(func() { _, err := host.Exec(t.Context(), "TABLE locked -- host"); assert.Error(t, err) })
	until(2)
	dialer.Refuse()
	clients.Wait()
	until(1)
	assert.Equal(t, []string{"TABLE locked -- host"}, waiting())
	require.NoError(t, tx.Rollback(t.Context()))
}

// TestAHookThatFailsSendsNothing: no connection can be made, so that nothing is written.
func TestAHookThatFailsSendsNothing(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(cfg *pgxpool.Config, fail func() error){
		"BeforeConnect": func(cfg *pgxpool.Config, fail func() error) {
			cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { return fail() }
		},
		"AfterConnect": func(cfg *pgxpool.Config, fail func() error) {
			cfg.AfterConnect = func(context.Context, *pgx.Conn) error { return fail() }
		},
	} {
		cfg, err := pgxpool.ParseConfig(testdb.PostgresURL(t))
		require.NoError(t, err)
		var fails atomic.Bool
		set(cfg, func() error {
			if fails.Load() {
				return errors.New("token service: 503")
			}
			return nil
		})
		host, err := pgxpool.NewWithConfig(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(host.Close)
		own, err := postgres.OpenPool(t.Context(), host, 1, nil)
		require.NoError(t, err)
		defer own.Close()
		own.Reset()
		fails.Store(true)
		_, err = own.Exec(t.Context(), "SELECT 1")
		assert.ErrorContains(t, err, "503", name)
		assert.Equal(t, sqlerr.Unavailable, postgres.Classify(err), name)
	}
}

// TestABatchThatIsNotPreparedWritesNothing: the reply to a batch's preparation is lost, or does not
// come in time. After a lost reply to the batch itself nothing is known.
func TestABatchThatIsNotPreparedWritesNothing(t *testing.T) {
	t.Parallel()
	for mode, class := range map[faultconn.Mode]sqlerr.Class{faultconn.CutAfter: sqlerr.Unavailable, faultconn.Stall: sqlerr.Busy} {
		for _, prepared := range []bool{false, true} {
			cfg, err := pgx.ParseConfig(testdb.PostgresURL(t))
			require.NoError(t, err)
			dialer := new(faultconn.Dialer)
			cfg.DialFunc = dialer.DialContext
			conn, err := pgx.ConnectConfig(t.Context(), cfg)
			require.NoError(t, err)
			insert := func(ctx context.Context) error {
				b := new(pgx.Batch)
				b.Queue("INSERT INTO trial VALUES (1)")
				return conn.SendBatch(ctx, b).Close()
			}
			_, err = conn.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS trial (n int)")
			require.NoError(t, err)
			if prepared {
				require.NoError(t, insert(t.Context()))
				class = sqlerr.Unresolved
			}
			dialer.Arm(1, mode, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err = insert(ctx)
			cancel()
			assert.True(t, dialer.Disarm())
			assert.Equal(t, class, postgres.Classify(err), "%v, prepared: %v: %v", mode, prepared, err)
		}
	}
}
