package main

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/bench"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

// databaseConns are the numbers of database connections that every peer is tried with, as dblock's
// own sales are. It runs with the best.
func databaseConns() []int { return []int{2, 4, 16, 64} }

// handWritten are the server's own locks and a sale as people write them by hand: with pgx on
// Postgres, and with database/sql.
func handWritten() []bench.Scenario {
	sale := bench.PlainSale{Postgres: sellByHand, MySQL: sellByHand}
	scenarios := func(name, about string, engines ...devdb.Kind) []bench.Scenario {
		return append(
			bench.LockScenarios(name, "hand-written: "+about+" on a connection for each lock", engines, databaseConns(), bench.OpenConnectionLocks),
			bench.SaleScenario("seckill/"+name, "one hot SKU, hand-written with "+name+": UPDATE and INSERT in one transaction", engines, databaseConns(),
				func(ctx context.Context, env *bench.Env) (bench.Seller, error) {
					return bench.OpenPlainSale(ctx, env, sale)
				}))
	}
	return append(scenarios("pgx", "pg_advisory_lock", devdb.Postgres), scenarios("sql", "GET_LOCK", devdb.MariaDB, devdb.MySQL)...)
}

const (
	readStock = "SELECT available FROM dblock_stock WHERE sku = $1 AND bucket = 0"
	takeUnit  = "UPDATE dblock_stock SET available = available - 1 WHERE sku = $1 AND bucket = 0 AND available >= 1"
	makeOrder = "INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state) VALUES ($1, $2, $3, 1, 2)"
)

func sellByHand(ctx context.Context, db *bench.Database, r inventory.Request) error {
	return db.Tx(ctx, func(tx bench.Conn) error {
		taken, err := tx.Exec(ctx, takeUnit, r.SKU)
		if err == nil && taken == 0 {
			err = inventory.ErrSoldOut
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, makeOrder, r.Key, r.SKU, r.Buyer)
		return err
	})
}

// sellLocked relies on a lock on the SKU: no other order is between its SELECT and its COMMIT.
func sellLocked(ctx context.Context, db *bench.Database, r inventory.Request) error {
	return db.Tx(ctx, func(tx bench.Conn) error {
		var left int64
		if err := tx.Query(ctx, readStock, r.SKU).Scan(&left); err != nil {
			return err
		}
		if left < 1 {
			return inventory.ErrSoldOut
		}
		if _, err := tx.Exec(ctx, makeOrder, r.Key, r.SKU, r.Buyer); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, takeUnit, r.SKU)
		return err
	})
}

// describedLocker is a bench.Locker on a server of its own.
type describedLocker interface {
	bench.Locker
	bench.Described
}

// lockedSale is how stock is mostly sold with a lock service: the holder of the lock on the SKU
// reads the stock, writes the order and the new stock, commits, and releases the lock.
func lockedSale(name string, open func(context.Context, *bench.Env) (describedLocker, error)) bench.Scenario {
	about := "one hot SKU, sold by hand-written SQL under a lock of " + name
	return bench.SaleScenario("seckill/"+name, about, nil, databaseConns(),
		func(ctx context.Context, env *bench.Env) (bench.Seller, error) {
			locks, err := open(ctx, env)
			if err != nil {
				return nil, err
			}
			seller, err := bench.OpenPlainSale(ctx, env, bench.PlainSale{Postgres: sellLocked, MySQL: sellLocked})
			if err != nil {
				return nil, errors.Join(err, locks.Close())
			}
			return &lockedShop{seller, locks, described{
				string(env.Kind) + "+" + locks.Engine(), env.Server.Version + " + " + locks.Server(),
			}}, nil
		})
}

// lockedShop sells under a lock on the SKU.
type lockedShop struct {
	bench.Seller
	locks bench.Locker
	described
}

func (s *lockedShop) Sell(ctx context.Context, key, sku, buyer string) (err error) {
	unlock, err := s.locks.Lock(ctx, sku)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock(ctx)) }()
	return s.Seller.Sell(ctx, key, sku, buyer)
}

func (s *lockedShop) Close() error { return errors.Join(s.Seller.Close(), s.locks.Close()) }
