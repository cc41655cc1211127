package dblock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
)

// blind is a Locker whose Holder fails on command.
type blind struct {
	*dblocktest.LeaseLocker
	mu  sync.Mutex
	err error
}

func (b *blind) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *blind) Holder(ctx context.Context, key string) (dblock.HeldLock, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return dblock.HeldLock{}, b.err
	}
	return b.LeaseLocker.Holder(ctx, key)
}

func TestElectorObserves(t *testing.T) {
	inBubble(t, func(t *testing.T, s *dblocktest.Server, ctx context.Context, _ func(error)) {
		a := newCandidate(t, s, dblock.ElectorOptions{Label: "a", Data: []byte("10.0.0.1:80")})
		b := &blind{LeaseLocker: a.locks}
		watching, err := dblock.NewElector(b, "leader", dblock.ElectorOptions{})
		if err != nil {
			t.Fatal(err)
		}
		type seen struct {
			dblock.HeldLock
			err error
		}
		all := make(chan seen, 100)
		watch, stopWatching := context.WithCancel(ctx)
		go func() {
			defer close(all)
			for leader, err := range watching.Observe(watch) {
				all <- seen{leader, err}
			}
		}()
		if x := <-all; !errors.Is(x.err, dblock.ErrNotHeld) {
			t.Errorf("nobody leads: %+v", x)
		}
		a.run(ctx, a.lead)
		first := <-a.terms
		if x := <-all; x.err != nil || x.Fence != first || x.Holder.Label != "a" || string(x.Data) != "10.0.0.1:80" {
			t.Errorf("a leads: %+v", x)
		}
		time.Sleep(time.Hour) // nothing changes
		b.fail(dblock.ErrUnavailable)
		if x := <-all; !errors.Is(x.err, dblock.ErrUnavailable) {
			t.Errorf("the database is away: %+v", x)
		}
		time.Sleep(time.Hour)
		b.fail(nil)
		if x := <-all; x.err != nil || x.Fence != first {
			t.Errorf("it is back: %+v", x)
		}
		a.locks.Lose("leader")
		second := <-a.terms
		if x := <-all; x.err != nil && !errors.Is(x.err, dblock.ErrNotHeld) || x.err == nil && x.Fence != second {
			t.Errorf("a leads anew: %+v", x)
		}
		time.Sleep(time.Minute)
		for len(all) > 0 { // a moment without a leader may have been seen in between
			<-all
		}
		stopWatching()
		if x, more := <-all; more {
			t.Errorf("after its context has ended: %+v", x)
		}
		b.fail(dblock.ErrSchema)
		n := 0
		for _, err := range watching.Observe(ctx) {
			if n++; !errors.Is(err, dblock.ErrSchema) {
				t.Errorf("yielded %v", err)
			}
		}
		if n != 1 {
			t.Errorf("an error that does not pass was yielded %d times", n)
		}
	})
}

// TestElectorHasNoLeaderAmongReaders: a process that holds the key shared leads nothing.
func TestElectorHasNoLeaderAmongReaders(t *testing.T) {
	t.Parallel()
	l, err := dblocktest.NewServer(nil).NewLeaseLocker(dblocktest.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.Background()) }()
	reader := get(t, l, "leader", dblock.WithShared())
	defer giveBack(t, reader)
	elector, err := dblock.NewElector(l, "leader", dblock.ElectorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if h, err := elector.Leader(t.Context()); !errors.Is(err, dblock.ErrNotHeld) || h.Fence.Token != 0 {
		t.Errorf("got %+v, %v", h, err)
	}
	if h, err := l.Holder(t.Context(), "leader"); err != nil || h.Mode != dblock.ModeShared {
		t.Errorf("the holder: %+v, %v", h, err)
	}
}
