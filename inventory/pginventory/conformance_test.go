package pginventory_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	inventorysuite "github.com/dblock-go/dblock/internal/conformance/inventory"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
)

var engine = inventorysuite.Inventory{Kind: devdb.Postgres, Open: open, OpenOn: openOn, OpenHooked: openHooked, Callers: callers}

func open(ctx context.Context, dsn string, o inventory.Options) (*inventory.Store, func(), error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	if !strings.Contains(dsn, "pool_max_conns") {
		cfg.MaxConns = 64
	}
	return storeOn(ctx, cfg, o)
}

// storeOn makes a Store with a pool of its own.
func storeOn(ctx context.Context, cfg *pgxpool.Config, o inventory.Options, more ...pginventory.Option) (*inventory.Store, func(), error) {
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	store, err := pginventory.New(ctx, pool, o, more...)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return store, pool.Close, nil
}

func TestMain(m *testing.M) {
	testdb.Main(m, devdb.Postgres)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	engine.Run(t)
}

func TestFaults(t *testing.T) {
	t.Parallel()
	engine.RunFaults(t)
}
