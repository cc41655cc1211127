package suite

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
)

func Acquire(t *testing.T, l dblock.Locker, key string, opts ...dblock.Option) *dblock.Lock {
	t.Helper()
	lock, err := l.Acquire(Soon(t), key, opts...)
	require.NoError(t, err, "acquire %q", key)
	return lock
}

func Release(t *testing.T, lock *dblock.Lock) {
	t.Helper()
	assert.NoError(t, lock.Release(t.Context()), "release of %q", lock.Key())
}

// IsHeld fails unless err says that the key is held.
func IsHeld(t *testing.T, err error, key string) *dblock.HeldError {
	t.Helper()
	require.ErrorIs(t, err, dblock.ErrNotAcquired)
	held := As[*dblock.HeldError](t, err)
	require.Equal(t, key, held.Key)
	return held
}

// IsLost waits until the lock is lost, for that reason.
func IsLost(t *testing.T, lock *dblock.Lock, want dblock.Reason) {
	t.Helper()
	Wait(t, lock.Context().Done(), "the loss of "+lock.Key())
	var lost *dblock.LostError
	if assert.ErrorAs(t, context.Cause(lock.Context()), &lost) {
		assert.Equal(t, want, lost.Reason)
	}
	assert.ErrorIs(t, lock.Release(t.Context()), dblock.ErrLost, "release of what was lost")
}
