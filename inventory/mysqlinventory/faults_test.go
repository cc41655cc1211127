package mysqlinventory_test

import (
	"context"

	"github.com/go-sql-driver/mysql"

	inventorysuite "github.com/dblock-go/dblock/internal/conformance/inventory"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// openOn is open with connections of the given dialer's.
func openOn(
	ctx context.Context, dsn string, dialer *faultconn.Dialer, o inventory.Options,
) (*inventory.Store, func(), error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, nil, err
	}
	cfg.DialFunc = dialer.DialContext
	cfg.Logger = &mysql.NopLogger{} // connections are cut on purpose
	return storeOn(ctx, cfg, o)
}

func on(kind devdb.Kind) inventorysuite.Inventory {
	return inventorysuite.Inventory{Kind: kind, Open: open, OpenOn: openOn, OpenHooked: openHooked, Callers: callers}
}
