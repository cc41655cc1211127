package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/bench"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

// pgxScenarios are what people write by hand with pgx.
func pgxScenarios() []bench.Scenario {
	postgres := []devdb.Kind{devdb.Postgres}
	return append(
		bench.LockScenarios("pgx", "hand-written: pg_advisory_lock on a connection for each lock",
			postgres, databaseConns(),
			func(ctx context.Context, env *bench.Env) (bench.Locker, error) {
				pool, err := env.Postgres(ctx)
				return pgxLocks{pool}, err
			}),
		bench.SaleScenario("seckill/pgx", "one hot SKU, hand-written with pgx: UPDATE and INSERT in one transaction",
			postgres, databaseConns(),
			func(ctx context.Context, env *bench.Env) (bench.Seller, error) {
				pool, err := env.Postgres(ctx)
				if err != nil {
					return nil, err
				}
				return &pgxShop{&shop{stdlib.OpenDBFromPool(pool), statementsFor(env.Kind)}, pool}, nil
			}))
}

// pgxShop sells through the pool itself; only the books are read through database/sql.
type pgxShop struct {
	*shop
	pool *pgxpool.Pool
}

func (s *pgxShop) Sell(ctx context.Context, key, sku, buyer string) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		taken, err := tx.Exec(ctx, s.say.take, sku)
		if err != nil {
			return err
		}
		if taken.RowsAffected() == 0 {
			return inventory.ErrSoldOut
		}
		_, err = tx.Exec(ctx, s.say.order, key, sku, buyer)
		return err
	})
}

func (s *pgxShop) Close() error {
	err := s.shop.Close()
	s.pool.Close()
	return err
}

type pgxLocks struct{ pool *pgxpool.Pool }

func (l pgxLocks) Close() error { l.pool.Close(); return nil }

// Lock keeps its connection until the lock is given back: the session owns the lock.
func (l pgxLocks) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", key); err != nil {
		return nil, errors.Join(err, discard(ctx, conn))
	}
	return func(ctx context.Context) error {
		var held bool
		err := conn.QueryRow(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", key).Scan(&held)
		if err == nil && !held {
			err = errNotHeld
		}
		if err != nil {
			return errors.Join(err, discard(ctx, conn))
		}
		conn.Release()
		return nil
	}, nil
}

var errNotHeld = errors.New("the lock was not held when it was given back")

// discard ends the session, and what locks it may hold: the pool must not get it.
func discard(ctx context.Context, conn *pgxpool.Conn) error {
	err := conn.Conn().Close(ctx)
	conn.Release()
	return err
}
