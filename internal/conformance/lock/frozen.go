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

// frozenWithin is how long a call may take while the server is frozen. A call that waits for the server's answer waits for
// half of the TTL.
const frozenWithin = 30 * time.Second

// aFrozenServerHoldsNoCaller freezes the server while locks are held. All is free soon after it answers again.
func aFrozenServerHoldsNoCaller(t *testing.T, v *env) {
	own, server := v.onAServerOfItsOwn(t)
	if server == nil {
		return // it was given, and may serve others
	}
	l := own.processOn(t, &faultconn.Dialer{}, LeaseOptions{TTL: churnTTL})
	locks := make([]*dblock.Lock, 50)
	for i := range locks {
		locks[i] = suite.Acquire(t, l, fmt.Sprint("key ", i))
	}
	require.NoError(t, server.Freeze())
	inTime := func(what string, call func()) {
		began := time.Now()
		call()
		assert.LessOrEqual(t, time.Since(began), frozenWithin, what)
	}
	inTime("a release", func() { _ = locks[0].Release(t.Context()) })
	inTime("releases", func() { suite.Crowd(49, func(i int) { _ = locks[1+i].Release(t.Context()) }) })
	for _, acquire := range []func(context.Context, string, ...dblock.Option) (*dblock.Lock, error){l.TryAcquire, l.Acquire} {
		inTime("an acquisition", func() {
			ctx, cancel := context.WithTimeout(t.Context(), suite.FrozenDeadline)
			defer cancel()
			assert.Error(t, suite.Second(acquire(ctx, "another")))
		})
	}
	require.NoError(t, server.Thaw())
	assert.Empty(t, own.untilNothingHeld(t, churnFree))
	assert.NoError(t, l.Close(suite.Soon(t)))
}

// aCloseOfAFrozenServer closes a Locker with locks in use. The process leaves in the background.
func aCloseOfAFrozenServer(t *testing.T, v *env) {
	own, server := v.onAServerOfItsOwn(t)
	if server == nil {
		return // it was given, and may serve others
	}
	for name, within := range map[string]time.Duration{"an ended context": -1, "a short one": suite.FrozenDeadline} {
		l, end, err := own.OpenLeases(t.Context(), LeaseOptions{TTL: time.Hour})
		require.NoError(t, err)
		for i := range 3 {
			suite.Acquire(t, l, fmt.Sprint("key ", i))
		}
		require.NoError(t, server.Freeze())
		ctx, cancel := context.WithTimeout(t.Context(), within)
		began := time.Now()
		assert.Error(t, l.Close(ctx), name)
		assert.LessOrEqual(t, time.Since(began), frozenWithin, name)
		cancel()
		require.NoError(t, server.Thaw())
		own.Until(t, suite.Members, 0)
		end()
	}
}
