package pglock_test

import (
	"context"
	"database/sql"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	locksuite "github.com/dblock-go/dblock/internal/conformance/lock"
	sessionsuite "github.com/dblock-go/dblock/internal/conformance/session"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

var leases = locksuite.Lease{
	Kind: devdb.Postgres, Open: open, OpenOn: openOn, OpenPair: openPair, Guarded: guarded, AdvanceFence: advanceFence, CheckFence: checkFence,
}

func open(ctx context.Context, dsn string, o locksuite.LeaseOptions) (locksuite.Leases, func(), error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	return leasesOn(ctx, cfg, o)
}

// openOn is open with connections of the given dialer's.
func openOn(
	ctx context.Context, dsn string, dialer *faultconn.Dialer, o locksuite.LeaseOptions,
) (locksuite.Leases, func(), error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	cfg.ConnConfig.DialFunc = dialer.DialContext
	return leasesOn(ctx, cfg, o)
}

func leasesOn(ctx context.Context, cfg *pgxpool.Config, o locksuite.LeaseOptions) (locksuite.Leases, func(), error) {
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	l, err := leaseOn(ctx, pool, o)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return l, pool.Close, nil
}

func leaseOn(ctx context.Context, pool *pgxpool.Pool, o locksuite.LeaseOptions) (locksuite.Leases, error) {
	return pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{
		TTL: o.TTL, Margin: o.Margin, Poll: o.Poll, Label: o.Label, Fair: o.Fair, Schema: o.Schema, Observer: o.Observer,
	})
}

// openPair is openOn for two that share a pool.
func openPair(
	ctx context.Context, dsn string, dialer *faultconn.Dialer, ofA, ofB locksuite.LeaseOptions,
) (a, b locksuite.Leases, closePool func(), err error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, nil, err
	}
	cfg.ConnConfig.DialFunc = dialer.DialContext
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	a, err = leaseOn(ctx, pool, ofA)
	if err == nil {
		b, err = leaseOn(ctx, pool, ofB)
	}
	return a, b, pool.Close, err
}

func guarded(ctx context.Context, l locksuite.Leases, lock *dblock.Lock, statement string, within func()) error {
	return l.(*pglock.LeaseLocker).GuardedTx(ctx, lock, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, statement)
		within()
		return err
	})
}

func advanceFence(ctx context.Context, tx *sql.Tx, f dblock.Fence, resource string) error {
	return pglock.Guards{}.AdvanceFence(ctx, pglock.SQLTx(tx), f, resource)
}

func checkFence(ctx context.Context, tx *sql.Tx, f dblock.Fence, resource string) error {
	return pglock.Guards{}.CheckFence(ctx, pglock.SQLTx(tx), f, resource)
}

// openSession opens session locks; without a dialer connections are the usual ones.
func openSession(
	ctx context.Context, dsn string, dialer *faultconn.Dialer, o sessionsuite.SessionOptions,
) (dblock.Locker, func(), error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	if dialer != nil {
		cfg.ConnConfig.DialFunc = dialer.DialContext
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	l, err := pglock.NewSessionLocker(ctx, pool, pglock.SessionOptions{
		Namespace: o.Namespace, RawKeys: o.Raw, IdleTimeout: o.IdleTimeout, MaxConns: o.MaxConns, Poll: o.Poll, ServerQueue: o.ServerQueue,
		Label: o.Label, Schema: o.Schema, Observer: o.Observer,
	})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return l, pool.Close, nil
}

var sessions = sessionsuite.Session{
	Kind: devdb.Postgres, Open: openSession,
	Names: func(_, key string) (lock, mark string) {
		return strconv.FormatInt(int64(pglock.KeyOf("", key)), 10), ""
	},
}

func TestMain(m *testing.M) {
	leases.Main()
	sessions.Main()
	testdb.Main(m, devdb.Postgres)
}

func TestLease(t *testing.T) {
	t.Parallel()
	leases.Run(t)
}

func TestLeaseFaults(t *testing.T) {
	t.Parallel()
	leases.RunFaults(t)
}

func TestSession(t *testing.T) {
	t.Parallel()
	sessions.Run(t)
}

func TestSessionWaits(t *testing.T) {
	t.Parallel()
	suite.RunEach(t, sessionWaitTests{}, func(t *testing.T) *suite.DB { return suite.NewDB(t, devdb.Postgres) })
}

func TestSessionFaults(t *testing.T) {
	t.Parallel()
	sessions.RunFaults(t)
}
