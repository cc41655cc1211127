package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/bench"
	"github.com/dblock-go/dblock/inventory"
)

// describedLocker is a bench.Locker on a server of its own.
type describedLocker interface {
	bench.Locker
	bench.Described
}

// lockedSale is how stock is mostly sold with a lock service: whoever has the lock on the SKU reads
// the stock, writes the order and the new stock, commits, and gives the lock back.
func lockedSale(name string, open func(context.Context, *bench.Env) (describedLocker, error)) bench.Scenario {
	about := "one hot SKU, sold by hand-written SQL under a lock of " + name
	return bench.SaleScenario("seckill/"+name, about, nil, databaseConns(),
		func(ctx context.Context, env *bench.Env) (bench.Seller, error) {
			locks, err := open(ctx, env)
			if err != nil {
				return nil, err
			}
			s, err := openShop(ctx, env)
			if err != nil {
				return nil, errors.Join(err, locks.Close())
			}
			return &lockedShop{s, locks, described{
				string(env.Kind) + "+" + locks.Engine(), env.Server.Version + " + " + locks.Server(),
			}}, nil
		})
}

// lockedShop sells under a lock on the SKU.
type lockedShop struct {
	*shop
	locks bench.Locker
	described
}

// Sell relies on the lock: no one else is between its SELECT and its COMMIT.
func (s *lockedShop) Sell(ctx context.Context, key, sku, buyer string) (err error) {
	unlock, err := s.locks.Lock(ctx, sku)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock(ctx)) }()
	return s.inTx(ctx, func(tx *sql.Tx) error {
		var left int64
		if err := tx.QueryRowContext(ctx, s.say.left, sku).Scan(&left); err != nil {
			return err
		}
		if left < 1 {
			return inventory.ErrSoldOut
		}
		if _, err := tx.ExecContext(ctx, s.say.order, key, sku, buyer); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, s.say.take, sku)
		return err
	})
}

func (s *lockedShop) Close() error { return errors.Join(s.shop.Close(), s.locks.Close()) }
