package lock

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// The tests of doc.go are methods of these types. What leases promise on a database and in memory
// is the contract. Session locks promise their readers the same.
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

// The processes that tests start, to stop them or to cut them off, are this test binary again. Its
// environment says what to do.
const (
	holderDSN  = "DBLOCK_TEST_HOLDER"
	holderKind = "DBLOCK_TEST_HOLDER_KIND"
	holderKey  = "DBLOCK_TEST_HOLDER_KEY"
	holderTTL  = "DBLOCK_TEST_HOLDER_TTL"

	guardedKey = "guarded" // a process that holds this key stays in a guarded transaction
)

// Main does the work of a child process, and then never returns. Call it first in TestMain.
func (e Lease) Main() {
	if dsn := os.Getenv(holderDSN); dsn != "" {
		e.Kind = devdb.Kind(os.Getenv(holderKind))
		fmt.Println("ended:", e.hold(context.Background(), dsn))
		os.Exit(1)
	}
}

func (e Lease) hold(ctx context.Context, dsn string) error {
	ttl, err := time.ParseDuration(os.Getenv(holderTTL))
	if err != nil {
		return err
	}
	l, _, err := e.Open(ctx, dsn, LeaseOptions{TTL: ttl})
	if err != nil {
		return err
	}
	key := os.Getenv(holderKey)
	if key != guardedKey {
		return suite.CountOn(ctx, l, key)
	}
	lock, err := l.Acquire(ctx, key)
	if err != nil {
		return err
	}
	return e.Guarded(ctx, l, lock, "INSERT INTO written VALUES (1)", func() {
		fmt.Println("holds")
		suite.WaitToGoOn()
	})
}

// toHold has the process of a command hold a key, on the database of dsn.
func (e Lease) toHold(cmd *exec.Cmd, dsn, key string, ttl time.Duration) *exec.Cmd {
	cmd.Env = append(os.Environ(), holderDSN+"="+dsn, holderKind+"="+string(e.Kind), holderKey+"="+key, holderTTL+"="+ttl.String())
	return cmd
}

// EndsWhoStopsInAGuard stops a process inside a guarded transaction, which keeps others out. The
// server ends the transaction, and its commit comes too late. The control is a transaction that
// nothing bounds: the lease of its dead holder is not taken over.
func (leaseTests) EndsWhoStopsInAGuard(t *testing.T, v *env) {
	_, written := v.written(t)
	c := suite.StartChild(t, v.e.toHold(exec.CommandContext(t.Context(), os.Args[0]), v.DSN, guardedKey, 6*time.Second))
	t.Cleanup(c.Kill)
	c.Says(t, "holds")
	require.NoError(t, suite.Suspend(c.Process))
	l := v.process(t, LeaseOptions{})
	dead := suite.Acquire(t, l, "unbounded")
	unlock := v.Locked(t, "SELECT token FROM dblock_lease WHERE lease_key = 'unbounded' FOR UPDATE")
	v.ExpireMembers(t)
	next := suite.Acquire(t, l, guardedKey)
	assert.Error(t, suite.Second(v.process(t, LeaseOptions{}).TryAcquire(t.Context(), "unbounded")), "the control")
	_ = c.In.Close()
	require.NoError(t, suite.Resume(c.Process))
	require.True(t, c.Lines.Scan(), "the process is gone")
	assert.NotEqual(t, "ended: <nil>", c.Lines.Text())
	assert.Zero(t, written())
	suite.Release(t, next)
	unlock()
	suite.IsFree(t, l, "unbounded")
	_ = dead.Release(t.Context())
}
