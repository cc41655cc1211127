package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// RunReadOnly acquires and keeps locks while the server becomes read-only and back.
func (e Lease) RunReadOnly(t *testing.T) {
	s := suite.NewReadOnlyServer(t, e.Kind)
	if s == nil {
		return
	}
	locker, done, err := e.Open(t.Context(), s.DSN, LeaseOptions{TTL: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		require.NoError(t, locker.Close(ctx), "close")
	}()
	acquire := func(key string, opts ...dblock.Option) *dblock.Lock {
		t.Helper()
		lock, err := locker.TryAcquire(t.Context(), key, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}
	kept, given := acquire("kept"), acquire("given back")
	s.Become(t, true)
	_, err = locker.TryAcquire(t.Context(), "free")
	suite.SaysReadOnly(t, `"free"`, err)
	_, err = locker.Acquire(t.Context(), "free") // no wait can help
	suite.SaysReadOnly(t, `"free"`, err)
	require.NoError(t, given.Release(t.Context()), "a release, which goes on until the lock has ended by itself")
	select {
	case <-kept.Context().Done(): // heartbeats fail, so it ends before others may have it
		if !errors.Is(context.Cause(kept.Context()), dblock.ErrLost) {
			t.Errorf("the lock ended with %v", context.Cause(kept.Context()))
		}
	case <-time.After(time.Minute):
		t.Error("a lock without heartbeats goes on")
	}
	_ = kept.Release(t.Context())
	s.Become(t, false)
	for _, key := range []string{"free", "given back", "kept"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		lock, err := locker.Acquire(ctx, key)
		cancel()
		if err != nil {
			t.Fatalf("after the server writes again: %v", err)
		}
		require.NoError(t, lock.Release(t.Context()), "release")
	}
}
