package migrations

import (
	"context"
	"database/sql"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// Locker is the lock that Up takes.
func Locker(engine Engine, schemaName string) lock.SessionLocker {
	return newLocker(&target{engine: engine, schema: schemaName}, 0)
}

// Files are the migrations as Up runs them.
func Files(engine Engine, schemaName string) fs.FS { return engine.files(schemaName) }

// ClosePgx is what the Postgres lock does to a connection in doubt.
func ClosePgx(driverConn any) { closePgx(driverConn) }

// UpWithLocker is Up with another lock.
func UpWithLocker(ctx context.Context, db *sql.DB, l lock.SessionLocker) ([]Applied, error) {
	opts, err := Options{}.withDefaults()
	if err != nil {
		return nil, err
	}
	t, err := open(ctx, db, "")
	if err != nil {
		return nil, err
	}
	return t.change(ctx, l, opts, func(ctx context.Context, p *goose.Provider) ([]*goose.MigrationResult, error) {
		return p.Up(ctx)
	})
}
