package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/pglock"
)

// leases is what the engines' LeaseLocker is.
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
	l, closePool, err := connect(ctx, f,
		func(pool *pgxpool.Pool) (leases, error) {
			return pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{TTL: o.TTL, Margin: o.Margin, Label: o.Label, Fair: o.Fair, Schema: f.Schema})
		},
		func(db *sql.DB) (leases, error) {
			return mysqllock.NewLeaseLocker(ctx, db, mysqllock.LeaseOptions{TTL: o.TTL, Margin: o.Margin, Label: o.Label, Fair: o.Fair, Schema: f.Schema})
		})
	return l, func() error { return errors.Join(closeSoon(ctx, l.Close), closePool()) }, err
}

// withLeases runs do on the lease locks of the database.
func (f databaseFlags) withLeases(ctx context.Context, do func(leases) error) error {
	l, closeAll, err := f.leases(ctx, leaseFlags{})
	if err != nil {
		return err
	}
	return errors.Join(do(l), closeAll())
}
