package migrations

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"

	"github.com/pressly/goose/v3/lock"

	"github.com/dblock-go/dblock/internal/schema"
)

// Locker is the lock that Up takes.
func Locker(engine Engine, schemaName string) lock.SessionLocker {
	return newLocker(&target{engine: engine, schema: schemaName}, 0)
}

// Files are the migrations as Up runs them.
func Files(engine Engine, schemaName string) fs.FS { return engine.files(schemaName) }

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
	return t.change(ctx, l, opts, (*run).up)
}

// UpUnchecked is Up that does not compare what it has made with the manifest.
func UpUnchecked(ctx context.Context, db *sql.DB) error {
	opts, err := Options{}.withDefaults()
	if err != nil {
		return err
	}
	t, err := open(ctx, db, "")
	if err != nil {
		return err
	}
	_, err = t.change(ctx, newLocker(t, 0), opts, func(r *run, ctx context.Context) error {
		r.unchecked = true
		return r.up(ctx)
	})
	return err
}

// Objects are what dblock's tables have.
func Objects(ctx context.Context, db *sql.DB, schemaName string) (shape schema.Shape, err error) {
	t, err := open(ctx, db, schemaName)
	if err != nil {
		return nil, err
	}
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return (&run{target: t, conn: conn}).objects(ctx)
}

// ParseStatements has each statement of a migration understood.
func ParseStatements(engine Engine, name string) error {
	up, down, err := script{engine: engine}.sections(name)
	if err != nil {
		return err
	}
	_, errUp := statements(up)
	_, errDown := statements(down)
	return errors.Join(errUp, errDown)
}

// Known are the engine's migrations.
func Known(engine Engine) ([]Migration, error) { return known(engine) }
