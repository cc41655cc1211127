package bench

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
)

// The least that a lock in a table can be: a row a key, which says whether it is held. The statements are
// what one would write by hand.
const (
	bareTablePostgres = "CREATE TABLE IF NOT EXISTS bare_lock (lock_key text PRIMARY KEY, token bigint NOT NULL, held boolean NOT NULL) WITH (fillfactor = 50)"
	bareLockPostgres  = "UPDATE bare_lock SET held = true, token = token + 1 WHERE lock_key = $1 AND NOT held RETURNING token"
	bareMakePostgres  = "INSERT INTO bare_lock VALUES ($1, 1, true) RETURNING token"
	bareFreePostgres  = "UPDATE bare_lock SET held = false WHERE lock_key = $1 AND token = $2"

	bareTableMySQL = "CREATE TABLE IF NOT EXISTS bare_lock (lock_key VARBINARY(512) PRIMARY KEY, token BIGINT NOT NULL, held TINYINT NOT NULL)"
	bareLockMySQL  = "UPDATE bare_lock SET held = 1, token = LAST_INSERT_ID(token + 1) WHERE lock_key = ? AND held = 0"
	bareMakeMySQL  = "INSERT INTO bare_lock VALUES (?, LAST_INSERT_ID(1), 1)"
	bareFreeMySQL  = "UPDATE bare_lock SET held = 0 WHERE lock_key = ? AND token = ?"
)

var errBareLost = errors.New("somebody else holds a key that is one caller's own")

func openBare(ctx context.Context, env *Env) (Locker, error) {
	if env.Kind == devdb.Postgres {
		pool, err := env.Postgres(ctx)
		if err != nil {
			return nil, err
		}
		_, err = pool.Exec(ctx, bareTablePostgres)
		return barePostgres{pool}, err
	}
	db, err := env.MySQL(ctx)
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, bareTableMySQL)
	return bareMySQL{db}, err
}

type barePostgres struct{ pool *pgxpool.Pool }

func (b barePostgres) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	var token int64
	err := b.pool.QueryRow(ctx, bareLockPostgres, key).Scan(&token)
	if errors.Is(err, pgx.ErrNoRows) {
		err = b.pool.QueryRow(ctx, bareMakePostgres, key).Scan(&token)
	}
	return func(ctx context.Context) error {
		tag, err := b.pool.Exec(ctx, bareFreePostgres, key, token)
		if err == nil && tag.RowsAffected() != 1 {
			err = errBareLost
		}
		return err
	}, err
}

func (b barePostgres) Close() error { b.pool.Close(); return nil }

type bareMySQL struct{ db *sql.DB }

func (b bareMySQL) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	changed, token, err := b.exec(ctx, bareLockMySQL, key)
	if err == nil && changed == 0 {
		_, token, err = b.exec(ctx, bareMakeMySQL, key)
	}
	return func(ctx context.Context) error {
		changed, _, err := b.exec(ctx, bareFreeMySQL, key, token)
		if err == nil && changed != 1 {
			err = errBareLost
		}
		return err
	}, err
}

func (b bareMySQL) exec(ctx context.Context, statement string, args ...any) (changed, told int64, err error) {
	result, err := b.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, 0, err
	}
	if changed, err = result.RowsAffected(); err == nil {
		told, err = result.LastInsertId()
	}
	return changed, told, err
}

func (b bareMySQL) Close() error { return b.db.Close() }
