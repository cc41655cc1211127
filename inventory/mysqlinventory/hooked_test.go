package mysqlinventory_test

import (
	"context"
	"strings"

	"github.com/go-sql-driver/mysql"

	inventorysuite "github.com/dblock-go/dblock/internal/conformance/inventory"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
)

// openHooked is openOn with a hook.
func openHooked(
	ctx context.Context, dsn string, dialer *faultconn.Dialer, o inventory.Options, hook inventorysuite.Hook,
) (*inventory.Store, func(), error) {
	unread := ctx // of rows that a hook does not read: it ends with the test
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, nil, err
	}
	cfg.DialFunc = dialer.DialContext
	cfg.Logger = &mysql.NopLogger{} // connections are cut on purpose
	return storeOn(ctx, cfg, o, mysqlinventory.WithHook(func(ctx context.Context, tx mysqlinventory.HookTx, granted []inventory.Reservation) error {
		return hook(ctx, func(statement string) error {
			switch {
			case strings.Contains(statement, "/* prepared */"):
				prepared, err := tx.PrepareContext(ctx, statement)
				if err == nil {
					_, err = prepared.QueryContext(unread)
				}
				return err
			case strings.HasPrefix(statement, "SELECT"):
				return tx.QueryRowContext(unread, statement).Err()
			}
			_, err := tx.ExecContext(ctx, statement)
			return err
		}, granted)
	}))
}
