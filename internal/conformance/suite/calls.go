package suite

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
)

// IsFree fails unless the key can be acquired soon.
func IsFree(t *testing.T, l dblock.Locker, key string, opts ...dblock.Option) {
	t.Helper()
	Release(t, Acquire(t, l, key, opts...))
}

// IsTaken fails unless a try is refused because the key is held.
func IsTaken(t *testing.T, l dblock.Locker, key string, opts ...dblock.Option) *dblock.HeldError {
	t.Helper()
	_, err := l.TryAcquire(t.Context(), key, opts...)
	return IsHeld(t, err, key)
}

// Begin calls f beside the caller. The function that it returns waits for the result.
func Begin[T any](f func() (T, error)) (result func() (T, error)) {
	var value T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, err = f()
	}()
	return func() (T, error) {
		<-done
		return value, err
	}
}

// Waiter waits for a key beside the caller. The function that it returns waits for the lock.
func Waiter(t *testing.T, l dblock.Locker, key string, opts ...dblock.Option) (lock func() *dblock.Lock) {
	t.Helper()
	ctx := Soon(t)
	acquired := Begin(func() (*dblock.Lock, error) { return l.Acquire(ctx, key, opts...) })
	return func() *dblock.Lock {
		t.Helper()
		lock, err := acquired()
		require.NoError(t, err, key)
		return lock
	}
}

// Crowd calls f(0) to f(n-1) in a goroutine each, begun at the same time, and returns when all calls have returned.
func Crowd(n int, f func(i int)) {
	var all sync.WaitGroup
	gate := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-gate
			f(i)
		})
	}
	close(gate)
	all.Wait()
}

// Together is Crowd.
func Together(n int, f func(i int)) { Crowd(n, f) }

// Beside calls f beside the caller. The function that it returns waits for its end.
func Beside(f func()) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return func() { <-done }
}
