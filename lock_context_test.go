package dblock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/root"
)

func lockInMemory(t *testing.T) (*dblock.Lock, dblock.Locker) {
	t.Helper()
	l, err := dblocktest.NewServer(nil).NewLeaseLocker(dblocktest.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return get(t, l, "k"), l
}

// What runs under a lock leaves nothing behind on its context, nor on the caller's.
func TestRunUnderLeavesNothingBehind(t *testing.T) {
	lock, _ := lockInMemory(t)
	defer giveBack(t, lock)
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run := func(n int) {
		for range n {
			if err := root.RunUnder(ctx, lock, func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(100)
	before := live()
	run(1_000_000)
	if grown := live() - before; grown > 1<<20 {
		t.Errorf("a million calls grew the heap by %d bytes", grown)
	}
}

func TestBindOfAnEndedLock(t *testing.T) {
	t.Parallel()
	lock, _ := lockInMemory(t)
	giveBack(t, lock)
	for range 1000 {
		if lock.Bind(t.Context()).Err() == nil {
			t.Fatal("alive")
		}
	}
	var lost *dblock.LostError
	err := root.RunUnder(t.Context(), lock, func(context.Context) error { t.Error("ran"); return nil })
	if !errors.As(err, &lost) || lost.Reason != dblock.ReasonReleased || lost.Key != "k" {
		t.Errorf("got %v", err)
	}
}

// A nil argument is refused, or means none; it never panics, nor keeps the lock.
func TestNilArguments(t *testing.T) {
	t.Parallel()
	lock, l := lockInMemory(t)
	var none context.Context
	if err := lock.Release(none); err != nil {
		t.Error(err)
	}
	lock, err := l.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	giveBack(t, lock)
	if _, err := l.TryAcquire(t.Context(), "k", nil); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("a nil option: %v", err)
	}
	var typed *dblocktest.LeaseLocker
	if _, err := dblock.NewElector(typed, "k", dblock.ElectorOptions{}); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("a nil Locker of a type: %v", err)
	}
}

// TestBindFrees: the lock keeps nothing of a bound context whose parent has ended. The control is
// one whose parent lives.
func TestBindFrees(t *testing.T) {
	t.Parallel()
	lock, _ := lockInMemory(t)
	defer giveBack(t, lock)
	type key struct{}
	type value [1 << 10]byte
	bind := func(ends bool) weak.Pointer[value] {
		v := new(value)
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, v))
		bound := lock.Bind(ctx)
		if ends {
			cancel()
			<-bound.Done()
		} else {
			t.Cleanup(cancel)
		}
		return weak.Make(v)
	}
	kept, freed := bind(false), bind(true)
	for deadline := time.Now().Add(time.Minute); freed.Value() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the lock keeps the context")
		}
		runtime.GC()
	}
	if kept.Value() == nil {
		t.Error("the control was freed, too")
	}
}

// TestCloseOfWhatIsIdle: a Locker without locks closes also if the context has ended.
func TestCloseOfWhatIsIdle(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		lock, l := lockInMemory(t)
		giveBack(t, lock)
		if err := l.Close(ended); err != nil {
			t.Fatal(err)
		}
	}
	lock, l := lockInMemory(t)
	defer func() { _ = lock.Release(t.Context()) }() // lost by then
	if err := l.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with a lock in use: %v", err)
	}
}

// TestBoundContextsHideNoLock: a context that is bound to a lock belongs to the locks of its
// parent, too, however they are bound to each other.
func TestBoundContextsHideNoLock(t *testing.T) {
	t.Parallel()
	lock, l := lockInMemory(t)
	other, third := get(t, l, "other"), get(t, l, "third")
	for name, ctx := range map[string]context.Context{
		"bound":       other.Bind(lock.Context()),
		"bound twice": third.Bind(other.Bind(lock.Context())),
		"bound again": other.Bind(third.Bind(other.Bind(lock.Bind(third.Context())))),
	} {
		if _, err := l.TryAcquire(ctx, "k"); !errors.Is(err, dblock.ErrDeadlock) {
			t.Errorf("%s: %v, want a deadlock", name, err)
		}
		if inner, ok := dblock.LockOf(ctx); !ok || inner.Key() == "k" {
			t.Errorf("%s: it belongs to %v", name, inner)
		}
		child, err := l.TryAcquire(ctx, "k", dblock.WithReentrant())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		within, err := l.TryAcquire(third.Bind(child.Context()), "k", dblock.WithReentrant())
		if err != nil {
			t.Errorf("%s, within a child: %v", name, err)
			continue
		}
		giveBack(t, within)
		giveBack(t, child)
	}
	err := root.RunUnder(lock.Context(), other, func(ctx context.Context) error {
		_, err := l.TryAcquire(ctx, "k")
		return err
	})
	if !errors.Is(err, dblock.ErrDeadlock) {
		t.Errorf("under another lock: %v, want a deadlock", err)
	}
	for _, held := range []*dblock.Lock{lock, other, third} {
		giveBack(t, held)
	}
}
