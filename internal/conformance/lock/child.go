package lock

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// The processes that tests start, to stop them or to cut them off, are this test binary again. Its
// environment says what to do.
const (
	holderDSN  = "DBLOCK_TEST_HOLDER"
	holderKind = "DBLOCK_TEST_HOLDER_KIND"
	holderKey  = "DBLOCK_TEST_HOLDER_KEY"
	holderTTL  = "DBLOCK_TEST_HOLDER_TTL"

	guardedKey = "guarded" // a process that holds this key stays in a guarded transaction
)

// Main does what a test has started this process for, and then never returns. Call it first in
// TestMain.
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
	c := suite.StartChild(t, v.e.toHold(exec.CommandContext(t.Context(), os.Args[0]), v.DSN, guardedKey, 2*time.Second))
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
