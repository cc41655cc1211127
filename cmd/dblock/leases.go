package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/pglock"
)

// leases is what the engines' Lease is.
type leases interface {
	dblock.Locker
	Held(ctx context.Context) ([]dblock.HeldLock, error)
	ForceRelease(ctx context.Context, key string, token int64) error
	SetPermits(ctx context.Context, key string, limit int) error
}

// leaseFlags are what a command chooses of a LeaseLocker's options.
type leaseFlags struct {
	TTL    time.Duration
	Margin time.Duration
	Label  string
	Fair   bool
}

// leases connects to the lease locks of the database; closeAll leaves what is held.
func (f databaseFlags) leases(ctx context.Context, o leaseFlags) (l leases, closeAll func() error, err error) {
	if f.isPostgres() {
		return f.postgresLeases(ctx, o)
	}
	db, err := f.open()
	if err != nil {
		return nil, nil, err
	}
	locker, err := mysqllock.NewLeaseLocker(ctx, db, mysqllock.LeaseOptions{TTL: o.TTL, Margin: o.Margin, Label: o.Label, Fair: o.Fair, Schema: f.Schema})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return locker, func() error { return errors.Join(closeLeases(ctx, locker), db.Close()) }, nil
}

func (f databaseFlags) isPostgres() bool {
	return strings.HasPrefix(f.Database, "postgres://") || strings.HasPrefix(f.Database, "postgresql://")
}

func (f databaseFlags) postgresLeases(ctx context.Context, o leaseFlags) (leases, func() error, error) {
	pool, err := f.postgresPool(ctx)
	if err != nil {
		return nil, nil, err
	}
	locker, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{TTL: o.TTL, Margin: o.Margin, Label: o.Label, Fair: o.Fair, Schema: f.Schema})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return locker, func() error {
		defer pool.Close()
		return closeLeases(ctx, locker)
	}, nil
}

func (f databaseFlags) postgresPool(ctx context.Context) (*pgxpool.Pool, error) {
	db, err := f.open() // for its errors, which show no password
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	config, err := devdb.ParsePostgres(f.Database)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.ConnectTimeout = dialTimeout
	pin(&config.ConnConfig.Config, f.Schema)
	return pgxpool.NewWithConfig(ctx, config)
}

func closeLeases(ctx context.Context, l leases) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
	defer cancel()
	return l.Close(ctx)
}
