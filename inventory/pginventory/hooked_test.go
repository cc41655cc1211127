package pginventory_test

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	inventorysuite "github.com/dblock-go/dblock/internal/conformance/inventory"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
)

// openHooked is openOn with a hook.
func openHooked(
	ctx context.Context, dsn string, dialer *faultconn.Dialer, o inventory.Options, hook inventorysuite.Hook,
) (*inventory.Store, func(), error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns = 64
	cfg.ConnConfig.DialFunc = dialer.DialContext
	return storeOn(ctx, cfg, o, pginventory.WithHook(func(ctx context.Context, tx pginventory.HookTx, granted []inventory.Reservation) error {
		return hook(ctx, func(statement string) error {
			if strings.HasPrefix(statement, "SELECT") {
				_, err := tx.Query(ctx, statement)
				return err
			}
			_, err := tx.Exec(ctx, statement)
			return err
		}, granted)
	}))
}
