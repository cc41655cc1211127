package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// ReadersShare has readers of two processes hold a key at once, and keeps a writer out while there is one.
func ReadersShare(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	before := suite.Acquire(t, a, "k")
	suite.Release(t, before)
	shared := dblock.WithShared()
	first, second, near := suite.Acquire(t, a, "k", shared), suite.Acquire(t, b, "k", shared), suite.Acquire(t, a, "k", shared)
	fenced := a.Caps().Fencing
	if fenced && (token(t, first) != token(t, second) || token(t, first) != token(t, near) || token(t, first) <= token(t, before)) {
		t.Errorf("readers have the tokens %d, %d and %d, after %d", token(t, first), token(t, second), token(t, near), token(t, before))
	}
	for _, l := range []Leases{a, b} {
		_, err := l.TryAcquire(t.Context(), "k")
		suite.IsHeld(t, err, "k")
	}
	for _, lock := range []*dblock.Lock{first, near} {
		suite.Release(t, lock)
		_, err := a.TryAcquire(t.Context(), "k")
		suite.IsHeld(t, err, "k")
	}
	suite.Release(t, second)
	after := suite.Acquire(t, b, "k")
	if fenced && token(t, after) <= token(t, first) {
		t.Errorf("a writer has the token %d after readers with %d", token(t, after), token(t, first))
	}
	for _, l := range []Leases{a, b} {
		_, err := l.TryAcquire(t.Context(), "k", shared)
		suite.IsHeld(t, err, "k")
	}
	suite.Release(t, after)
	for _, l := range []Leases{a, b} {
		suite.Release(t, suite.Acquire(t, l, "k", shared))
	}
}

// WaitsForReaders has a writer wait for readers, who keep others from coming in; when it gives up they may come again.
func WaitsForReaders(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	shared := dblock.WithShared()
	reads := suite.Acquire(t, a, "k", shared)
	ctx, giveUp := context.WithCancel(suite.Soon(t))
	gone := make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx, "k")
		gone <- err
	}()
	KeptOut(t, a, "k")
	giveUp()
	// Its outcome is unknown if it gives up while a statement of it is under way.
	if err := <-gone; !errors.Is(err, dblock.ErrNotAcquired) && !errors.Is(err, dblock.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("a writer that gave up was told %v", err)
	}
	suite.Release(t, suite.Acquire(t, a, "k", shared))
	letIn(t, a, "k")

	var writing atomic.Bool
	got := make(chan *dblock.Lock, 1)
	go func() { got <- suite.Acquire(t, b, "k") }()
	KeptOut(t, a, "k")
	next := make(chan struct{})
	go func() { // in the server's own line it may come before the writer, who has said that it waits but does not stand there yet
		defer close(next)
		lock := suite.Acquire(t, a, "k", shared)
		if writing.Load() {
			t.Error("a reader has come in beside a writer")
		}
		suite.Release(t, lock)
	}()
	suite.Release(t, reads)
	select {
	case writes := <-got:
		writing.Store(true)
		if again, err := a.TryAcquire(t.Context(), "k", shared); !errors.Is(err, dblock.ErrNotAcquired) {
			t.Errorf("a reader beside a writer: %v, %v", again, err)
		}
		writing.Store(false)
		suite.Release(t, writes)
	case <-suite.Soon(t).Done():
		t.Fatal("the writer was not let in once the readers had gone")
	}
	<-next
}

// KeptOut waits until readers are not let in any more.
func KeptOut(t *testing.T, l dblock.Locker, key string) {
	t.Helper()
	for ctx := suite.Soon(t); ; time.Sleep(time.Millisecond) {
		lock, err := l.TryAcquire(ctx, key, dblock.WithShared())
		if errors.Is(err, dblock.ErrNotAcquired) && ctx.Err() == nil {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		suite.Release(t, lock)
	}
}

// letIn waits until readers are let in at once: nothing is left of a writer that waited.
func letIn(t *testing.T, l dblock.Locker, key string) {
	t.Helper()
	for ctx := suite.Soon(t); ; time.Sleep(time.Millisecond) {
		lock, err := l.TryAcquire(ctx, key, dblock.WithShared())
		if err == nil {
			suite.Release(t, lock)
			return
		}
		if !errors.Is(err, dblock.ErrNotAcquired) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// AWriterIsLetIn has readers of several processes come and go so that there is always one, and a writer that waits.
// The control is one that tries again and again: it is let in by nobody.
func AWriterIsLetIn(t *testing.T, p Place) {
	const poll = 50 * time.Millisecond
	l := p.process(t, LeaseOptions{Poll: poll})
	ctx, stop := context.WithCancel(suite.Soon(t))
	var readers sync.WaitGroup
	var reads atomic.Int64
	var longest atomic.Int64
	for range 3 {
		r := p.process(t, LeaseOptions{})
		for range 4 {
			readers.Go(func() {
				for ctx.Err() == nil {
					lock, err := r.Acquire(ctx, "k", dblock.WithShared())
					if err != nil {
						continue
					}
					began := time.Now()
					reads.Add(1)
					time.Sleep(5 * time.Millisecond)
					suite.Release(t, lock)
					longest.Store(max(longest.Load(), int64(time.Since(began))))
				}
			})
		}
	}
	for reads.Load() < 50 {
		time.Sleep(time.Millisecond)
	}
	for began, n := time.Now(), reads.Load(); time.Since(began) < 200*time.Millisecond || reads.Load() < n+20; time.Sleep(time.Millisecond) {
		if lock, err := l.TryAcquire(ctx, "k"); err == nil {
			t.Log("one that only tries was let in: there was a gap")
			suite.Release(t, lock)
		}
	}
	began, before := time.Now(), reads.Load()
	writes, err := l.Acquire(ctx, "k")
	if err != nil {
		t.Errorf("the writer was not let in for %v: %v", time.Since(began), err)
	} else {
		t.Logf("let in after %v and %d more reads; the longest read took %v", time.Since(began), reads.Load()-before, time.Duration(longest.Load()))
		if waited, most := time.Since(began), time.Duration(longest.Load())+2*poll+30*time.Second; waited > most { // seconds for a busy machine
			t.Errorf("let in after %v, want %v: the longest read, and two polls", waited, most)
		}
		suite.Release(t, writes)
	}
	stop()
	readers.Wait()
}

// deadReadersGiveWay lets readers die, or their time run out.
func deadReadersGiveWay(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	shared := dblock.WithShared()
	dead := []*dblock.Lock{suite.Acquire(t, a, "dies", shared), suite.Acquire(t, a, "dies", shared)}
	p.ForgetMembers(t)
	suite.Release(t, suite.Acquire(t, b, "dies"))
	for _, lock := range dead {
		_ = lock.Release(t.Context()) // it learns of it by its next heartbeat
	}
	ends := suite.Acquire(t, a, "ends", shared, dblock.WithMaxHold(50*time.Millisecond))
	suite.Release(t, suite.Acquire(t, b, "ends"))
	suite.IsLost(t, ends, dblock.Ended)

	const lasting = 2 * time.Second
	began := time.Now()
	lasts := suite.Acquire(t, a, "lasts", shared, dblock.WithoutRenewal(lasting))
	p.ForgetMembers(t)
	if _, err := b.TryAcquire(t.Context(), "lasts"); err == nil && time.Since(began) < lasting {
		t.Error("taken from a reader whose time is not up")
	}
	suite.Release(t, suite.Acquire(t, b, "lasts"))
	suite.IsLost(t, lasts, dblock.Ended)

	writer := suite.Acquire(t, a, "writer dies")
	p.ForgetMembers(t)
	suite.Release(t, suite.Acquire(t, b, "writer dies", shared))
	_ = writer.Release(t.Context()) // it learns of it by its next heartbeat
}

// aDeadWriterLeavesReaders has a writer die that waits for readers: whoever comes next waits for them, too.
func aDeadWriterLeavesReaders(t *testing.T, p Place) {
	a, b, c := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	// A reader that no member keeps.
	reads := suite.Acquire(t, a, "k", dblock.WithShared(), dblock.WithoutRenewal(time.Minute))
	ctx, stop := context.WithCancel(suite.Soon(t))
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		_, _ = b.Acquire(ctx, "k")
	}()
	KeptOut(t, c, "k")
	p.ForgetMembers(t)
	if lock, err := c.TryAcquire(t.Context(), "k"); err == nil {
		t.Error("the writer that died has taken its reader with it")
		suite.Release(t, lock)
	}
	stop()
	<-waits
	suite.Release(t, reads)
	suite.Release(t, suite.Acquire(t, c, "k"))
}

// ReadersDontUpgrade refuses a reader that wants to write below its own lock, which would wait for itself.
func ReadersDontUpgrade(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	outer := suite.Acquire(t, l, "k", dblock.WithShared())
	for _, opts := range [][]dblock.Option{{}, {dblock.WithReentrant()}, {dblock.WithShared()}} {
		var deadlock *dblock.DeadlockError
		if _, err := l.Acquire(outer.Context(), "k", opts...); !errors.As(err, &deadlock) || !errors.Is(err, dblock.ErrDeadlock) || deadlock.Mode != dblock.Shared {
			t.Errorf("below itself: %v", err)
		}
	}
	inner, err := l.Acquire(outer.Context(), "k", dblock.WithShared(), dblock.WithReentrant())
	if err != nil {
		t.Fatal(err)
	}
	suite.Release(t, outer)
	if _, err := l.TryAcquire(t.Context(), "k"); err == nil {
		t.Error("the inner lock does not count")
	}
	suite.Release(t, inner)
	writes := suite.Acquire(t, l, "k")
	if _, err := l.Acquire(writes.Context(), "k", dblock.WithShared()); !errors.Is(err, dblock.ErrDeadlock) {
		t.Errorf("a writer that wants to read: %v", err)
	}
	suite.Release(t, writes)
}

// guardsReaders checks what is held shared.
func guardsReaders(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
	first, second := suite.Acquire(t, a, "k", dblock.WithShared()), suite.Acquire(t, b, "k", dblock.WithShared())
	for l, lock := range map[Leases]*dblock.Lock{a: first, b: second} {
		if err := p.Check(t.Context(), l, lock); err != nil {
			t.Error(err)
		}
	}
	suite.Release(t, first)
	if err := p.Check(t.Context(), b, second); err != nil {
		t.Error(err)
	}
	p.ForgetMembers(t)
	suite.Release(t, suite.Acquire(t, a, "k"))
	if err := p.Check(t.Context(), b, second); !errors.Is(err, dblock.ErrFenced) && !errors.Is(err, dblock.ErrLost) {
		t.Errorf("a reader that was declared dead: %v", err)
	}
	_ = second.Release(t.Context()) // it learns of it by its next heartbeat
}

// aSweepLeavesReaders has a key swept that was read once, and none that is being read.
func aSweepLeavesReaders(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	reads := suite.Acquire(t, l, "read", dblock.WithShared())
	for i := range 3 {
		suite.Release(t, suite.Acquire(t, l, fmt.Sprint("was read", i), dblock.WithShared()))
	}
	p.AgeLeases(t)
	if n, err := l.Sweep(t.Context()); err != nil || n != 3 {
		t.Errorf("swept %d rows, %v, want the 3 that nobody reads", n, err)
	}
	_, err := l.TryAcquire(t.Context(), "read")
	suite.IsHeld(t, err, "read")
	suite.Release(t, suite.Acquire(t, l, "read", dblock.WithShared()))
	suite.Release(t, reads)
	suite.Release(t, suite.Acquire(t, l, "read"))
	suite.Release(t, suite.Acquire(t, l, "was read0"))
}

// showsReaders lists and force-releases what is held shared.
func showsReaders(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{Label: "process"})
	reads := suite.Acquire(t, l, "k", dblock.WithShared(), dblock.WithLabel("reads"))
	other := suite.Acquire(t, l, "k", dblock.WithShared())
	held, err := l.Held(t.Context())
	if err != nil || len(held) != 2 {
		t.Fatalf("%+v, %v", held, err)
	}
	labels := map[string]bool{}
	for _, h := range held {
		labels[h.Holder.Label] = true
		if h.Key != "k" || h.Mode != dblock.Shared || h.Fence.Mode != dblock.Shared || h.Fence.Token != token(t, reads) || h.Remaining <= 0 {
			t.Errorf("%+v", h)
		}
	}
	if !labels["reads"] || !labels["process"] {
		t.Errorf("labels %v", labels)
	}
	_, err = l.TryAcquire(t.Context(), "k")
	if held := suite.IsHeld(t, err, "k"); !labels[held.Holder.Label] {
		t.Errorf("a writer was told of %v", held)
	}
	if err := l.ForceRelease(t.Context(), "k", token(t, reads)); err != nil {
		t.Error(err)
	}
	suite.Release(t, suite.Acquire(t, l, "k"))
	endedFor(t, reads.Release(t.Context()), dblock.Stolen) // it knew of nothing
	endedFor(t, other.Release(t.Context()), dblock.Stolen)
}

// ReadersDontWait lets a crowd of one process read at once: none of them ends before all have begun.
func ReadersDontWait(t *testing.T, p Place) {
	const crowd = 50
	l := p.process(t, LeaseOptions{})
	writes := suite.Acquire(t, l, "k")
	var in, done sync.WaitGroup
	in.Add(crowd)
	for range crowd {
		done.Go(func() {
			lock, err := l.Acquire(suite.Soon(t), "k", dblock.WithShared())
			in.Done()
			if err != nil {
				t.Error(err)
				return
			}
			in.Wait()
			suite.Release(t, lock)
		})
	}
	suite.Release(t, writes)
	done.Wait()
}
