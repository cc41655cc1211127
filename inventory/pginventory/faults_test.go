package pginventory_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// openOn is open with connections of the given dialer's.
func openOn(
	ctx context.Context, dsn string, dialer *faultconn.Dialer, o inventory.Options,
) (*inventory.Store, func(), error) {
	return openIn(pgx.QueryExecModeCacheStatement)(ctx, dsn, dialer, o)
}

type opener = func(context.Context, string, *faultconn.Dialer, inventory.Options) (*inventory.Store, func(), error)

// openIn is openOn for a host that has pgx send statements in another way.
func openIn(mode pgx.QueryExecMode) opener {
	return func(
		ctx context.Context, dsn string, dialer *faultconn.Dialer, o inventory.Options,
	) (*inventory.Store, func(), error) {
		cfg, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			return nil, nil, err
		}
		cfg.ConnConfig.DefaultQueryExecMode = mode
		return openConfig(ctx, cfg, dialer, o)
	}
}

func openConfig(
	ctx context.Context, cfg *pgxpool.Config, dialer *faultconn.Dialer, o inventory.Options,
) (*inventory.Store, func(), error) {
	cfg.MaxConns = 64
	cfg.ConnConfig.DialFunc = dialer.DialContext
	return storeOn(ctx, cfg, o)
}

// TestFaultsInOtherQueryModes: behind some poolers hosts choose one of these, and each is another
// conversation with the server.
func TestFaultsInOtherQueryModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			e := engine
			e.OpenOn = openIn(mode)
			e.Cuts(t)
		})
	}
}
