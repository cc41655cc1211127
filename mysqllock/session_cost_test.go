package mysqllock_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/mysqllock"
)

func TestSessionsCostFewRoundTrips(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			conformance.SessionsCostFewRoundTrips(t, kind,
				func(ctx context.Context, dsn string, dialer *faultconn.Dialer, idle time.Duration) (dblock.Locker, func(), error) {
					cfg, err := mysql.ParseDSN(dsn)
					if err != nil {
						return nil, nil, err
					}
					cfg.DialFunc = dialer.DialContext
					connector, err := mysql.NewConnector(cfg)
					if err != nil {
						return nil, nil, err
					}
					db := sql.OpenDB(connector)
					l, err := mysqllock.NewSession(ctx, db, mysqllock.SessionOptions{IdleTimeout: idle})
					return l, func() { _ = db.Close() }, err
				})
		})
	}
}
