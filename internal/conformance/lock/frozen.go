package lock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// frozenWithin is how long a call may take while the server is frozen. A call that waits for the
// server's answer waits for half of the TTL.
const frozenWithin = 30 * time.Second

// AFrozenServerHoldsNoCaller freezes the server while locks are held. Each call returns in time. All
// is free soon after the server answers again, and the processes that were closed have left.
func (faultTests) AFrozenServerHoldsNoCaller(t *testing.T, v *env) {
	own, server := v.onAServerOfItsOwn(t)
	if server == nil {
		return // it was given, and may serve others
	}
	const crowd = 50
	closed := make([]Leases, 2)
	for i := range closed {
		l, end, err := own.OpenLeases(t.Context(), LeaseOptions{TTL: time.Hour})
		require.NoError(t, err)
		t.Cleanup(end)
		closed[i] = l
		for k := range 3 {
			suite.Acquire(t, l, fmt.Sprint("closed ", i, k))
		}
	}
	l := own.processOn(t, &faultconn.Dialer{}, LeaseOptions{TTL: 10 * time.Minute})
	locks, errs := acquireTogether(t, l, crowd, func(i int) (string, []dblock.Option) { return fmt.Sprint("key ", i), nil })
	require.Empty(t, errs)
	require.NoError(t, server.Freeze())
	inTime := func(what string, call func(ctx context.Context)) {
		ctx, cancel := context.WithTimeout(t.Context(), suite.FrozenDeadline)
		defer cancel()
		began := time.Now()
		call(ctx)
		assert.LessOrEqual(t, time.Since(began), frozenWithin, what)
	}
	inTime("a release", func(context.Context) { _ = locks[0].Release(t.Context()) })
	inTime("releases", func(context.Context) {
		suite.Crowd(crowd-1, func(i int) { _ = locks[1+i].Release(t.Context()) })
	})
	inTime("TryAcquire", func(ctx context.Context) { assert.Error(t, suite.Second(l.TryAcquire(ctx, "another"))) })
	inTime("Acquire", func(ctx context.Context) { assert.Error(t, suite.Second(l.Acquire(ctx, "another"))) })
	inTime("Close", func(ctx context.Context) { assert.Error(t, closed[0].Close(ctx)) })
	inTime("Close with an ended context", func(ctx context.Context) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		assert.Error(t, closed[1].Close(ended))
	})
	require.NoError(t, server.Thaw())
	own.Until(t, "SELECT count(*) FROM dblock_lease WHERE handle IS NOT NULL AND lease_key LIKE 'key%'", 0)
	own.Until(t, suite.Members, 1)
	assert.NoError(t, l.Close(suite.Soon(t)))
}
