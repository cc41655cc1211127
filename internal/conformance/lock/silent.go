package lock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// aSilentWireEndsWaitsAsDocumented: callers wait while connections fall silent, one after the other. Only ErrOutcomeUnknown and
// ErrUnavailable may end a wait before its context does, and a repeated call gets the lock.
func aSilentWireEndsWaitsAsDocumented(t *testing.T, v *env) {
	const callers, silences = 8, 3
	dialer := &faultconn.Dialer{}
	defer dialer.CloseAll()
	l, done, err := v.e.OpenOn(t.Context(), v.dsn, dialer, LeaseOptions{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	lock := suite.Acquire(t, v.process(t, LeaseOptions{}), "key")
	ctx := suite.Soon(t)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for {
				own, err := l.Acquire(ctx, "key")
				if err == nil {
					if err := own.Release(ctx); err != nil && !errors.Is(err, dblock.ErrLost) {
						t.Errorf("release: %v", err)
					}
					return
				}
				if ctx.Err() != nil {
					t.Errorf("no lock in time: %v", err)
					return
				}
				documented := errors.Is(err, dblock.ErrOutcomeUnknown) || errors.Is(err, dblock.ErrUnavailable)
				if !documented || errors.Is(err, dblock.ErrBusy) || errors.Is(err, dblock.ErrNotAcquired) {
					t.Errorf("a wait ended before its context with %v", err)
				}
			}
		})
	}
	for range silences {
		dialer.Arm(1, faultconn.Stall, nil)
		suite.Until(t, "a connection falls silent", func() bool { return dialer.Calls() > 0 })
		dialer.Disarm()
	}
	require.NoError(t, lock.Release(t.Context()), "release")
	all.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_ = l.Close(ctx)
}
