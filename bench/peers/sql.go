package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/dblock-go/dblock/bench"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

// sqlScenarios are what people write by hand with database/sql.
func sqlScenarios() []bench.Scenario {
	return append(
		bench.LockScenarios("sql", "hand-written: GET_LOCK on a *sql.Conn for each lock",
			[]devdb.Kind{devdb.MariaDB, devdb.MySQL}, databaseConns(),
			func(ctx context.Context, env *bench.Env) (bench.Locker, error) {
				db, err := openSQL(ctx, env)
				return sqlLocks{db}, err
			}),
		bench.SaleScenario("seckill/sql", "one hot SKU, hand-written with database/sql: UPDATE and INSERT in one transaction",
			nil, databaseConns(),
			func(ctx context.Context, env *bench.Env) (bench.Seller, error) {
				s, err := openShop(ctx, env)
				return sqlShop{s}, err
			}))
}

type sqlShop struct{ *shop }

func (s sqlShop) Sell(ctx context.Context, key, sku, buyer string) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		taken, err := tx.ExecContext(ctx, s.say.take, sku)
		if err != nil {
			return err
		}
		if n, err := taken.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, inventory.ErrSoldOut)
		}
		_, err = tx.ExecContext(ctx, s.say.order, key, sku, buyer)
		return err
	})
}

type sqlLocks struct{ db *sql.DB }

func (l sqlLocks) Close() error { return l.db.Close() }

// Lock keeps its connection until the lock is given back: the session owns the lock. The name holds
// the database's, because these locks are the whole server's. The patience is a number of seconds
// because MariaDB knows no endless one.
func (l sqlLocks) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := one(ctx, conn, "SELECT GET_LOCK(CONCAT(DATABASE(), '/', ?), 3600)", key); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := one(ctx, conn, "SELECT RELEASE_LOCK(CONCAT(DATABASE(), '/', ?))", key); err != nil {
			return err
		}
		return conn.Close()
	}, nil
}

// one asks what has to be answered with 1. Else the session ends, with what locks it may hold: the
// pool must not get it.
func one(ctx context.Context, conn *sql.Conn, query, key string) error {
	var answer sql.NullInt64 // NULL is the server's word for an error
	err := conn.QueryRowContext(ctx, query, key).Scan(&answer)
	if err == nil && answer.Int64 != 1 {
		err = errNotHeld
	}
	if err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = conn.Close()
	}
	return err
}
