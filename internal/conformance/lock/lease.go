package lock

import (
	"context"
	"database/sql"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// Lease is the lease locks of a driver.
type Lease struct {
	Kind devdb.Kind

	// Open makes the Locker of a process of its own, with a pool that closePool ends.
	Open func(ctx context.Context, dsn string, o LeaseOptions) (l Leases, closePool func(), err error)

	// OpenOn is Open with connections of the dialer.
	OpenOn func(ctx context.Context, dsn string, dialer *faultconn.Dialer, o LeaseOptions) (
		l Leases, closePool func(), err error)

	// OpenPair is OpenOn for two Lockers on one pool.
	OpenPair func(ctx context.Context, dsn string, dialer *faultconn.Dialer, ofA, ofB LeaseOptions) (
		a, b Leases, closePool func(), err error)

	// AdvanceFence and CheckFence call the driver's Guards in a transaction of db.
	AdvanceFence, CheckFence func(ctx context.Context, tx *sql.Tx, f dblock.Fence, resource string) error

	// Guarded runs a statement in the Locker's GuardedTx, and calls within before it commits.
	Guarded func(ctx context.Context, l Leases, lock *dblock.Lock, statement string, within func()) error
}

// LeaseOptions are those of the drivers' LeaseOptions that the suite sets.
type LeaseOptions struct {
	TTL, Margin, Poll time.Duration
	Label, Schema     string
	Fair              bool
	Observer          dblock.Observer
}

// Leases is what the drivers' Lease is.
type Leases interface {
	dblock.Locker
	Held(ctx context.Context) ([]dblock.HeldLock, error)
	Holder(ctx context.Context, key string) (dblock.HeldLock, error)
	Sweep(ctx context.Context) (int64, error)
	RunSweeper(ctx context.Context, every time.Duration) error
	ForceRelease(ctx context.Context, key string, token int64) error
	AcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error)
	TryAcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error)
	SetPermits(ctx context.Context, key string, limit int) error
}

// The tests of doc.go are methods of these types. What leases promise on a database and in memory is
// the contract. Session locks promise their readers the same.
type (
	contract    struct{ readerTests }
	readerTests struct{}
	leaseTests  struct{}
	faultTests  struct{}
)

// Readers are the tests of readers.
func Readers() map[string]func(*testing.T, Place) { return suite.Tests[Place](readerTests{}) }

// Run runs the suite.
func (e Lease) Run(t *testing.T) {
	suite.RunEach(t, contract{}, func(t *testing.T) Place { return Place{LeasePlace: e.env(t)} })
	suite.RunEach(t, leaseTests{}, e.env)
}

// RunFaults runs the tests of faults and crowds.
func (e Lease) RunFaults(t *testing.T) {
	e.runCut(t)
	suite.RunEach(t, faultTests{}, e.env)
}

// RunLeases runs the contract in memory. A test runs in a bubble of testing/synctest, where waits
// take no time.
func RunLeases(t *testing.T, at func(t *testing.T) LeasePlace) {
	for name, test := range suite.Tests[Place](contract{}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, Place{LeasePlace: at(t), bubble: true}) })
		})
	}
}
