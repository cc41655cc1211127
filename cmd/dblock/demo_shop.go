package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/bench"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/sale"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// connections of a shop's pool: as many as the direct strategy uses, and those of merged
// statements.
const connections = 64 + 8

// shop is a server with a migrated database of the demo's own.
type shop struct {
	server *devdb.Server
	dsn    string // of the database
	store  func(context.Context, inventory.Options) (*inventory.Store, error)
	plain  *bench.Database // of the strategies in plain SQL
	queue  func(context.Context, queue.Options) (*queue.Queue, error)
	undo   []func() error // what is to be closed, the last first
}

func openShop(ctx context.Context, kind devdb.Kind, progress io.Writer) (_ *shop, err error) {
	s := &shop{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.server, err = devdb.Start(ctx, kind, devdb.Options{
		Durable: true,
		Logf:    func(format string, args ...any) { _, _ = fmt.Fprintf(progress, format+"\n", args...) },
	})
	if err != nil {
		return nil, err
	}
	s.undo = append(s.undo, s.server.Close)
	dsn, drop, err := s.server.CreateDatabase(ctx)
	if err != nil {
		return nil, err
	}
	s.dsn = dsn
	s.undo = append(s.undo, func() error { return drop(context.WithoutCancel(ctx)) })
	if kind == devdb.Postgres {
		return s, s.openPostgres(ctx, dsn)
	}
	return s, s.openMySQL(ctx, dsn)
}

func (s *shop) openPostgres(ctx context.Context, dsn string) error {
	cfg, err := devdb.ParsePostgres(dsn)
	if err != nil {
		return err
	}
	cfg.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func() error { pool.Close(); return nil })
	s.store = func(ctx context.Context, o inventory.Options) (*inventory.Store, error) {
		return pginventory.New(ctx, pool, o)
	}
	s.queue = func(ctx context.Context, o queue.Options) (*queue.Queue, error) { return pgqueue.New(ctx, pool, o) }
	_, err = migrations.Up(ctx, pool, migrations.Options{})
	return err
}

func (s *shop) openMySQL(ctx context.Context, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	s.undo = append(s.undo, db.Close)
	s.store = func(ctx context.Context, o inventory.Options) (*inventory.Store, error) {
		return mysqlinventory.New(ctx, db, o)
	}
	s.queue = func(ctx context.Context, o queue.Options) (*queue.Queue, error) { return mysqlqueue.New(ctx, db, o) }
	_, err = migrations.Up(ctx, db, migrations.Options{})
	return err
}

// sells returns what sells by a strategy.
func (s *shop) sells(ctx context.Context, by strategy) (sale.Store, error) {
	store, err := s.store(ctx, by.options)
	if err != nil || by.plain == nil {
		return store, err
	}
	if s.plain == nil {
		if s.plain, err = bench.OpenDatabase(ctx, s.server.Kind, s.dsn, connections); err != nil {
			return nil, err
		}
		s.undo = append(s.undo, s.plain.Close)
	}
	return by.plain.Shop(store, s.plain), nil
}

func (s *shop) close() error {
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i]())
	}
	s.undo = nil
	return errors.Join(errs...)
}
