package suite

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
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

// IsFree fails unless the key can be acquired soon.
func IsFree(t *testing.T, l dblock.Locker, key string, opts ...dblock.Option) {
	t.Helper()
	Release(t, Acquire(t, l, key, opts...))
}

// IsTaken fails unless a try is refused because the key is held.
func IsTaken(t *testing.T, l dblock.Locker, key string, opts ...dblock.Option) *dblock.HeldError {
	t.Helper()
	return IsHeld(t, Second(l.TryAcquire(t.Context(), key, opts...)), key)
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

// Begin calls f beside the caller. The function that it returns waits for the result.
func Begin[T any](f func() (T, error)) (result func() (T, error)) {
	var value T
	var err error
	wait := Beside(func() { value, err = f() })
	return func() (T, error) {
		wait()
		return value, err
	}
}

// Beside calls f beside the caller. The function that it returns waits for its end.
func Beside(f func()) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return func() { <-done }
}

// Crowd calls f(0) to f(n-1) in a goroutine each, begun at the same time, and returns when all
// calls have returned.
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

// RowWaits counts the sessions that wait for a row's lock, in the database that it is asked in.
func RowWaits(kind devdb.Kind) string {
	if kind == devdb.Postgres {
		return "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	}
	return "SELECT count(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id " +
		"WHERE x.trx_state = 'LOCK WAIT' AND p.db = DATABASE()"
}

// Until waits until a condition holds.
func Until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for ctx := Soon(t); !is(); SleepFor(ctx, 2*time.Millisecond) {
		require.NoError(t, ctx.Err(), "it never came to be that %s", what)
	}
}

// Wait waits for a value of a channel.
func Wait[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-Soon(t).Done():
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}

// Soon bounds what has to happen, on however busy a machine.
func Soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// SleepFor sleeps until ctx ends, and returns whether it slept so long.
func SleepFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
