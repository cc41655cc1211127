package faultmatrix

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
)

func openMySQL(ctx context.Context, cfg config) (_ *client, err error) {
	o, err := mysql.ParseDSN(cfg.DSN)
	if err != nil {
		return nil, err
	}
	o.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(o)
	if err != nil {
		return nil, err
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(3 * poolConns) // dblock's own connections come out of it
	c := &client{pool: pool, closePool: func() { _ = pool.Close() }, secondAgo: "UTC_TIMESTAMP(6) - INTERVAL 1 SECOND"}
	defer func() {
		if err != nil {
			_ = c.close(ctx)
		}
	}()
	leases, err := mysqllock.NewLeaseLocker(ctx, pool, mysqllock.LeaseOptions{TTL: ttl, Label: fmt.Sprint("worker ", cfg.N)})
	if err != nil {
		return nil, err
	}
	c.leases = leases
	fair, err := mysqllock.NewLeaseLocker(ctx, pool, mysqllock.LeaseOptions{TTL: ttl, Fair: true})
	if err != nil {
		return nil, err
	}
	c.fair = fair
	operator, err := mysqllock.NewLeaseLocker(ctx, pool, mysqllock.LeaseOptions{TTL: longTTL})
	if err != nil {
		return nil, err
	}
	c.operator = operator
	sessions, err := mysqllock.NewSessionLocker(ctx, pool, mysqllock.SessionOptions{IdleTimeout: ttl})
	if err != nil {
		return nil, err
	}
	c.sessions = sessions
	if c.queue, err = mysqlqueue.New(ctx, pool, queueOptions); err != nil {
		return nil, err
	}
	if c.store, err = mysqlinventory.New(ctx, pool, storeOptions(cfg)); err != nil {
		return nil, err
	}
	c.guarded = func(ctx context.Context, lock *dblock.Lock, fn work) error {
		return leases.GuardedTx(ctx, lock, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, sqlQuerier{tx}) })
	}
	c.handleTx = func(kind string, fn func(context.Context, querier, string) error) error {
		return mysqlqueue.HandleTx(c.queue, kind, func(ctx context.Context, tx *sql.Tx, job queue.Job[string]) error {
			return fn(ctx, sqlQuerier{tx}, job.Args)
		})
	}
	return c, nil
}

type sqlQuerier struct{ tx *sql.Tx }

func (q sqlQuerier) exec(ctx context.Context, statement string) error {
	_, err := q.tx.ExecContext(ctx, statement)
	return err
}

func (q sqlQuerier) one(ctx context.Context, query string) (n int64, err error) {
	err = q.tx.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}
