package bench

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/internal/devdb"
)

const select1 = "SELECT 1"

// openSelect1 does it as a service would, with the pool that it has anyway. pgx prepares a statement
// by itself at its first use on a connection; database/sql has to be told.
func openSelect1(ctx context.Context, env *Env) (Workload, error) {
	if env.Kind == devdb.Postgres {
		pool, err := env.Postgres(ctx)
		if err != nil {
			return nil, err
		}
		op := func(ctx context.Context) (units int, err error) {
			err = pool.QueryRow(ctx, select1).Scan(&units)
			return units, err
		}
		return calls{op, func() error { pool.Close(); return nil }}, nil
	}
	db, err := env.MySQL(ctx)
	if err != nil {
		return nil, err
	}
	stmt, err := db.PrepareContext(ctx, select1)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	op := func(ctx context.Context) (units int, err error) {
		err = stmt.QueryRowContext(ctx).Scan(&units)
		return units, err
	}
	return calls{op, func() error { return errors.Join(stmt.Close(), db.Close()) }}, nil
}
