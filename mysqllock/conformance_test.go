package mysqllock_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	locksuite "github.com/dblock-go/dblock/internal/conformance/lock"
	sessionsuite "github.com/dblock-go/dblock/internal/conformance/session"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
)

func open(ctx context.Context, dsn string, o locksuite.LeaseOptions) (locksuite.Leases, func(), error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, nil, err
	}
	return leasesOn(ctx, cfg, 8, o)
}

// openOn is open with connections of the given dialer's.
func openOn(
	ctx context.Context, dsn string, dialer *faultconn.Dialer, o locksuite.LeaseOptions,
) (locksuite.Leases, func(), error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, nil, err
	}
	cfg.DialFunc = dialer.DialContext
	return leasesOn(ctx, cfg, 8, o)
}

func leasesOn(ctx context.Context, cfg *mysql.Config, conns int, o locksuite.LeaseOptions) (locksuite.Leases, func(), error) {
	db, err := poolOf(cfg)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	l, err := leaseOn(ctx, db, o)
	if err != nil {
		_ = db.Close()
		return nil, nil, err
	}
	return l, func() { _ = db.Close() }, nil
}

func poolOf(cfg *mysql.Config) (*sql.DB, error) {
	cfg.Logger = &mysql.NopLogger{} // connections are cut on purpose
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func leaseOn(ctx context.Context, db *sql.DB, o locksuite.LeaseOptions) (locksuite.Leases, error) {
	return mysqllock.NewLeaseLocker(ctx, db, mysqllock.LeaseOptions{
		TTL: o.TTL, Margin: o.Margin, Poll: o.Poll, Label: o.Label, Fair: o.Fair, Schema: o.Schema, Observer: o.Observer,
	})
}

// openPair is openOn for two that share a pool.
func openPair(
	ctx context.Context, dsn string, dialer *faultconn.Dialer, ofA, ofB locksuite.LeaseOptions,
) (a, b locksuite.Leases, closePool func(), err error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, nil, nil, err
	}
	cfg.DialFunc = dialer.DialContext
	db, err := poolOf(cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	a, err = leaseOn(ctx, db, ofA)
	if err == nil {
		b, err = leaseOn(ctx, db, ofB)
	}
	return a, b, func() { _ = db.Close() }, err
}

func guarded(ctx context.Context, l locksuite.Leases, lock *dblock.Lock, statement string, within func()) error {
	return l.(*mysqllock.LeaseLocker).GuardedTx(ctx, lock, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement)
		within()
		return err
	})
}

func leases(kind devdb.Kind) locksuite.Lease {
	return locksuite.Lease{
		Kind: kind, Open: open, OpenOn: openOn, OpenPair: openPair, Guarded: guarded,
		AdvanceFence: mysqllock.Guards{}.AdvanceFence, CheckFence: mysqllock.Guards{}.CheckFence,
	}
}

// openSession opens session locks; without a dialer connections are the usual ones.
func openSession(
	ctx context.Context, dsn string, dialer *faultconn.Dialer, o sessionsuite.SessionOptions,
) (dblock.Locker, func(), error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, nil, err
	}
	if dialer != nil {
		cfg.DialFunc = dialer.DialContext
	}
	db, err := poolOf(cfg)
	if err != nil {
		return nil, nil, err
	}
	l, err := mysqllock.NewSessionLocker(ctx, db, mysqllock.SessionOptions{
		Namespace: o.Namespace, RawNames: o.Raw, IdleTimeout: o.IdleTimeout, MaxConns: o.MaxConns, Poll: o.Poll, ServerQueue: o.ServerQueue,
		Schema: o.Schema, Observer: o.Observer,
	})
	if err != nil {
		_ = db.Close()
		return nil, nil, err
	}
	return l, func() { _ = db.Close() }, nil
}

func sessions(kind devdb.Kind) sessionsuite.Session {
	return sessionsuite.Session{Kind: kind, Open: openSession, Names: func(database, key string) (lock, mark string) {
		lock = mysqllock.NameOf(database, "", key)
		return lock, mysqllock.NameOf("", "dblock/waits", lock)
	}}
}

func TestMain(m *testing.M) {
	leases("").Main()
	sessions("").Main()
	testdb.Main(m, devdb.MariaDB, devdb.MySQL)
}

func TestLease(t *testing.T) {
	eachServer(t, func(t *testing.T, kind devdb.Kind) { leases(kind).Run(t) })
}

func TestLeaseFaults(t *testing.T) {
	eachServer(t, func(t *testing.T, kind devdb.Kind) { leases(kind).RunFaults(t) })
}

func eachServer(t *testing.T, run func(t *testing.T, kind devdb.Kind)) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			run(t, kind)
		})
	}
}

// family is the servers under test that speak MySQL's protocol: usually one.
func family() []devdb.Kind {
	return slices.DeleteFunc(slices.Clone(testdb.Engines()), func(k devdb.Kind) bool { return k == devdb.Postgres })
}

func TestSession(t *testing.T) {
	eachServer(t, func(t *testing.T, kind devdb.Kind) { sessions(kind).Run(t) })
}

func TestSessionFaults(t *testing.T) {
	eachServer(t, func(t *testing.T, kind devdb.Kind) { sessions(kind).RunFaults(t) })
}
