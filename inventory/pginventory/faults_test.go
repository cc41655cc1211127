package pginventory_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
)

// openOn is open with connections of the given dialer's.
func openOn(
	ctx context.Context, dsn string, dialer *faultconn.Dialer, o inventory.Options,
) (*inventory.Store, func(), error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns = 64
	cfg.ConnConfig.DialFunc = dialer.DialContext
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	store, err := pginventory.New(ctx, pool, o)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return store, pool.Close, nil
}

// TestConformanceUnderFaults runs for as long as DBLOCK_SOAK says.
func TestConformanceUnderFaults(t *testing.T) {
	t.Parallel()
	t.Run("SurvivesFaultsOnPostgres", func(t *testing.T) { engine.SurvivesFaults(t) })
}
