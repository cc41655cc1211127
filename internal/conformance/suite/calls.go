package suite

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
)

// Tests are the exported methods of a value by their names. Each takes a fixture.
func Tests[E any](of any) map[string]func(*testing.T, E) {
	all, v := map[string]func(*testing.T, E){}, reflect.ValueOf(of)
	for i := range v.NumMethod() {
		all[v.Type().Method(i).Name] = v.Method(i).Interface().(func(*testing.T, E))
	}
	return all
}

// RunEach runs Tests in parallel, each with a fixture of its own.
func RunEach[E any](t *testing.T, of any, fixture func(*testing.T) E) {
	Each(t, Tests[E](of), func(t *testing.T, test func(*testing.T, E)) { test(t, fixture(t)) })
}

// Each runs a parallel subtest for each case.
func Each[C any](t *testing.T, cases map[string]C, test func(t *testing.T, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}

// Setting makes a DSN of another one.
type Setting = func(t *testing.T, dsn string) string

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

// Observe returns an Observer, and a function that waits until its calls were these events.
func Observe() (o dblock.Observer, observed func(t *testing.T, events string)) {
	var mu sync.Mutex
	var heard []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, fmt.Sprintf(format, args...))
	}
	return dblock.Observer{
			Acquired: func(key string, _ time.Duration) { note("acquired %s", key) },
			NotAcquired: func(key string, _ time.Duration, err error) {
				note("not acquired %s: %v", key, errors.Is(err, dblock.ErrNotAcquired))
			},
			Released: func(key string, _ time.Duration) { note("released %s", key) },
			Lost:     func(key string, _ time.Duration, why dblock.Reason) { note("lost %s: %s", key, why) },
		}, func(t *testing.T, events string) {
			t.Helper()
			Until(t, events, func() bool { // the Observer is called after the holder
				mu.Lock()
				defer mu.Unlock()
				return strings.Join(heard, ", ") == events
			})
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
	return "SELECT count(*) FROM information_schema.innodb_trx x JOIN " + devdb.Processlist + " p ON p.id = x.trx_mysql_thread_id " +
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
