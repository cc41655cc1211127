package faultmatrix

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory/pginventory"
	"github.com/dblock-go/dblock/pglock"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

func openPostgres(ctx context.Context, cfg config) (_ *client, err error) {
	o, err := pgxpool.ParseConfig(cfg.DSN)
	if err != nil {
		return nil, err
	}
	o.MaxConns = poolConns
	pool, err := pgxpool.NewWithConfig(ctx, o)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(pool)
	c := &client{pool: db, closePool: func() { _ = db.Close(); pool.Close() }, secondAgo: "clock_timestamp() - interval '1 second'"}
	defer func() {
		if err != nil {
			_ = c.close(ctx)
		}
	}()
	leases, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{TTL: ttl, Label: fmt.Sprint("worker ", cfg.N)})
	if err != nil {
		return nil, err
	}
	c.leases = leases
	fair, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{TTL: ttl, Fair: true})
	if err != nil {
		return nil, err
	}
	c.fair = fair
	operator, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{TTL: longTTL})
	if err != nil {
		return nil, err
	}
	c.operator = operator
	if !cfg.NoSession {
		sessions, err := pglock.NewSessionLocker(ctx, pool, pglock.SessionOptions{IdleTimeout: ttl})
		if err != nil {
			return nil, err
		}
		c.sessions = sessions
	}
	if c.queue, err = pgqueue.New(ctx, pool, queueOptions); err != nil {
		return nil, err
	}
	if c.store, err = pginventory.New(ctx, pool, storeOptions(cfg)); err != nil {
		return nil, err
	}
	c.guarded = func(ctx context.Context, lock *dblock.Lock, fn work) error {
		return leases.GuardedTx(ctx, lock, func(ctx context.Context, tx pgx.Tx) error { return fn(ctx, pgQuerier{tx}) })
	}
	c.handleTx = func(kind string, fn func(context.Context, querier, string) error) error {
		return pgqueue.HandleTx(c.queue, kind, func(ctx context.Context, tx pgx.Tx, job queue.Job[string]) error {
			return fn(ctx, pgQuerier{tx}, job.Args)
		})
	}
	return c, nil
}

type pgQuerier struct{ tx pgx.Tx }

func (q pgQuerier) exec(ctx context.Context, statement string) error {
	_, err := q.tx.Exec(ctx, statement)
	return err
}

func (q pgQuerier) one(ctx context.Context, query string) (n int64, err error) {
	err = q.tx.QueryRow(ctx, query).Scan(&n)
	return n, err
}
