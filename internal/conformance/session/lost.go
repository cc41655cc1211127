package session

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// aLostLockIsNotReleased ends the connection of a holder and has another process take the lock. The holder releases before its
// process can notice the loss by itself: Release says that the lock was lost, with and without waiters of the same process.
func aLostLockIsNotReleased(t *testing.T, s *env) {
	for _, mode := range s.modes() {
		for _, crowd := range []int{0, 3} {
			a, b := s.process(t, SessionOptions{Poll: 20 * time.Millisecond}), s.process(t, SessionOptions{Poll: 20 * time.Millisecond})
			for range 5 {
				s.loseAndRelease(t, a, b, crowd, mode...)
			}
		}
	}
}

// modes are the options of the modes that this server has.
func (s *env) modes() [][]dblock.Option {
	modes := [][]dblock.Option{nil}
	if s.e.Kind == devdb.Postgres {
		modes = append(modes, []dblock.Option{dblock.WithShared()})
	}
	return modes
}

// aLostLockInLineIsNotReleased is the same for a lock that was waited for at the server, on a connection of its own.
func aLostLockInLineIsNotReleased(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{ServerQueue: true}), s.process(t, SessionOptions{Poll: 20 * time.Millisecond})
	first := suite.Acquire(t, b, "k")
	got := make(chan *dblock.Lock, 1)
	go func() { got <- suite.Acquire(t, a, "k") }()
	s.standAtServer(t, 1)
	suite.Release(t, first)
	lock := <-got
	if err := s.end(t.Context(), s.holder(t, "k"), false); err != nil {
		t.Fatal(err)
	}
	theirs := suite.Acquire(t, b, "k")
	if err := lock.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
		t.Errorf("another process has the lock, and Release returned %v", err)
	}
	suite.Release(t, theirs)
}

// lostReadersAreNotReleased is the same for readers of one process that share a lock: each of them hears of the loss.
func lostReadersAreNotReleased(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{}), s.process(t, SessionOptions{Poll: 20 * time.Millisecond})
	var readers []*dblock.Lock
	for range 3 {
		readers = append(readers, suite.Acquire(t, a, "k", dblock.WithShared()))
	}
	if err := s.end(t.Context(), s.holder(t, "k"), false); err != nil {
		t.Fatal(err)
	}
	theirs := suite.Acquire(t, b, "k")
	for i, lock := range readers {
		if err := lock.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
			t.Errorf("another process has the lock, and the release of reader %d returned %v", i, err)
		}
	}
	suite.Release(t, theirs)
}

func (s *env) loseAndRelease(t *testing.T, a, b dblock.Locker, crowd int, mode ...dblock.Option) {
	t.Helper()
	lock := suite.Acquire(t, a, "k", mode...)
	ctx, stop := context.WithCancel(suite.Soon(t))
	var waiters sync.WaitGroup
	for range crowd {
		waiters.Go(func() {
			if next, err := a.Acquire(ctx, "k", mode...); err == nil {
				_ = next.Release(context.WithoutCancel(ctx))
			}
		})
	}
	if err := s.end(t.Context(), s.holder(t, "k"), false); err != nil {
		t.Fatal(err)
	}
	theirs := suite.Acquire(t, b, "k")
	if err := lock.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
		t.Errorf("with %d waiters: another process has the lock, and Release returned %v", crowd, err)
	}
	suite.Release(t, theirs)
	stop()
	waiters.Wait()
}

// noHandOverWhenDead ends the connection of a process whose callers hand a lock over, and has another process take the
// lock. Until that one releases it the first process begins no critical section, but for one that was granted before.
func noHandOverWhenDead(t *testing.T, s *env) {
	var n tenures
	a, b := s.process(t, SessionOptions{Poll: 20 * time.Millisecond}), s.process(t, SessionOptions{Poll: 20 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for ctx.Err() == nil {
				lock, err := a.Acquire(ctx, "k")
				if err != nil {
					continue
				}
				one := tenure{key: "k", from: time.Now()}
				time.Sleep(time.Millisecond)
				one.to = time.Now()
				one.lost = errors.Is(lock.Release(t.Context()), dblock.ErrLost)
				n.add(one)
			}
		})
	}
	var theirs []tenure
	for range 5 {
		handOver := suite.Soon(t)
		for want := n.len() + 10; n.len() < want && handOver.Err() == nil; {
			time.Sleep(time.Millisecond)
		}
		for id := int64(0); id == 0 && handOver.Err() == nil; {
			if id = s.holder(t, "k"); id != 0 {
				_ = s.end(t.Context(), id, false)
			}
		}
		lock := suite.Acquire(t, b, "k")
		one := tenure{key: "k", from: time.Now()}
		time.Sleep(50 * time.Millisecond)
		one.to = time.Now()
		suite.Release(t, lock)
		theirs = append(theirs, one)
	}
	stop()
	callers.Wait()
	for _, one := range theirs {
		if begun, kept := n.beside(one); begun > 1 || kept > 0 {
			t.Errorf("while another process had the lock %d critical sections were begun, and %d were released without an error", begun, kept)
		}
	}
	if len(n.all) < 50 {
		t.Errorf("only %d tenures: this test shows nothing", len(n.all))
	}
	forged := tenures{all: []tenure{theirs[0], theirs[0]}} // the control
	if begun, kept := forged.beside(theirs[0]); begun != 2 || kept != 2 {
		t.Errorf("the judge counts %d and %d of 2 tenures beside another", begun, kept)
	}
}

func (n *tenures) len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.all)
}

// beside counts the tenures that began while the other process had the lock, and those that overlap its tenure although their
// release returned nil.
func (n *tenures) beside(other tenure) (begun, kept int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.all {
		if !a.from.Before(other.from) && a.from.Before(other.to) {
			begun++
		}
		if !a.lost && a.from.Before(other.to) && other.from.Before(a.to) {
			kept++
		}
	}
	return begun, kept
}
