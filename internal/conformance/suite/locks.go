package suite

import (
	"context"
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
)

func Acquire(t *testing.T, l dblock.Locker, key string, opts ...dblock.Option) *dblock.Lock {
	t.Helper()
	lock, err := l.Acquire(Soon(t), key, opts...)
	if err != nil {
		t.Fatalf("acquire %q: %v", key, err)
	}
	return lock
}

func Release(t *testing.T, lock *dblock.Lock) {
	t.Helper()
	if err := lock.Release(t.Context()); err != nil {
		t.Errorf("release of %q: %v", lock.Key(), err)
	}
}

// IsHeld fails unless err says that somebody has the key.
func IsHeld(t *testing.T, err error, key string) *dblock.HeldError {
	t.Helper()
	var held *dblock.HeldError
	if !errors.As(err, &held) || !errors.Is(err, dblock.ErrNotAcquired) || held.Key != key {
		t.Fatalf("got %v, want it held", err)
	}
	return held
}

// IsLost waits until the lock is lost, for that reason.
func IsLost(t *testing.T, lock *dblock.Lock, want dblock.Reason) {
	t.Helper()
	select {
	case <-lock.Context().Done():
	case <-Soon(t).Done():
		t.Fatalf("%q is not lost", lock.Key())
	}
	var lost *dblock.LostError
	if cause := context.Cause(lock.Context()); !errors.As(cause, &lost) || lost.Reason != want {
		t.Errorf("%q ended by %v, want: %s", lock.Key(), cause, want)
	}
	if err := lock.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
		t.Errorf("release of what was lost: %v", err)
	}
}
