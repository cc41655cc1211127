package mysqlinventory_test

import (
	"context"
	"testing"

	"github.com/go-sql-driver/mysql"

	inventorysuite "github.com/dblock-go/dblock/internal/conformance/inventory"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
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

// TestLastingFaults runs for as long as DBLOCK_SOAK says. The kind stands in the name of
// its subtest and not above it, where `go test -run` could not pick it out.
func TestLastingFaults(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind != devdb.Postgres {
			t.Run("SurvivesFaultsOn "+string(kind), func(t *testing.T) { on(kind).SurvivesFaults(t) })
		}
	}
}

func on(kind devdb.Kind) inventorysuite.Inventory {
	return inventorysuite.Inventory{Kind: kind, Open: open, OpenOn: openOn, OpenHooked: openHooked, Callers: callers}
}
