package pglock_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/pglock"
)

func TestSessionsCostFewRoundTrips(t *testing.T) {
	t.Parallel()
	conformance.SessionsCostFewRoundTrips(t, devdb.Postgres,
		func(ctx context.Context, dsn string, dialer *faultconn.Dialer, idle time.Duration) (dblock.Locker, func(), error) {
			cfg, err := pgxpool.ParseConfig(dsn)
			if err != nil {
				return nil, nil, err
			}
			cfg.ConnConfig.DialFunc = dialer.DialContext
			pool, err := pgxpool.NewWithConfig(ctx, cfg)
			if err != nil {
				return nil, nil, err
			}
			l, err := pglock.NewSession(ctx, pool, pglock.SessionOptions{IdleTimeout: idle})
			return l, pool.Close, err
		})
}
