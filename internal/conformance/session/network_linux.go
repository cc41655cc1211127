package session

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/testdb"
)

// RunCut runs what takes a network that can be cut, where such can be had.
func (e Session) runCut(t *testing.T) { suite.RunCut(t, e.Kind, e.aNetworkFallsSilent) }

// aNetworkFallsSilent: the server frees the lock of who was cut off from it within the IdleTimeout, after its holder has ceased to
// count on it.
func (e Session) aNetworkFallsSilent(t *testing.T) error {
	near, far := testdb.OwnNear(t, e.Kind)
	s := &env{e: e, dsn: near, db: suite.Connect(t, e.Kind, near), keys: map[string]bool{}}
	other := s.process(t, SessionOptions{Poll: 20 * time.Millisecond})
	n := suite.NewSilence(t, func(m *testdb.Far, key string, bound time.Duration) *suite.Child {
		return e.startFar(t, m, far, key, SessionOptions{IdleTimeout: bound})
	})
	line := e.newFarLine(t, s, other, n.Far, far)
	id, control := s.holder(t, "k"), s.holder(t, "control")
	if id == 0 || control == 0 {
		suite.Release(t, line.lock)
		return fmt.Errorf("before the cut the keys are held by %d and %d: this shows nothing", id, control)
	}
	got := n.Fall(t, other)
	if err := line.grantToTheDead(t, n); err != nil {
		n.Far.Mend(t)
		suite.Release(t, (<-got).Lock)
		return err
	}
	for ctx := suite.Soon(t); s.holder(t, "k") == id; {
		if ctx.Err() != nil {
			t.Fatal("the server frees nothing")
		}
	}
	freed := suite.Uptime()
	next := <-got
	n.InTime("who waited has it", next.At)
	if !n.Check(t, freed, dblock.Disconnected) {
		n.Far.Mend(t)
		suite.Release(t, next.Lock)
		suite.Release(t, line.isFreed(t, n))
		return n.Late
	}
	if id := s.holder(t, "control"); id != control {
		t.Errorf("the control's lock is held by %d, was by %d: something else than silence ended it", id, control)
	}
	after := line.isFreed(t, n)
	n.Far.Mend(t)
	suite.Follows(t, n.Holder, next.Lock)
	suite.Follows(t, line.waiter, after)
	return n.Late
}

func (e Session) startFar(t *testing.T, far *testdb.Far, dsn, key string, o SessionOptions) *suite.Child {
	t.Helper()
	return suite.StartChild(t, e.toCountOn(far.Command(t.Context(), os.Args[0]), dsn, key, o))
}

// farLine is a process at the far end that waits in the server's line, and is granted the lock when it can't be told.
type farLine struct {
	s      *env
	other  dblock.Locker
	lock   *dblock.Lock
	waiter *suite.Child
	next   <-chan suite.Taken
}

func (e Session) newFarLine(t *testing.T, s *env, other dblock.Locker, far *testdb.Far, dsn string) *farLine {
	t.Helper()
	l := &farLine{s: s, other: other, lock: suite.Acquire(t, other, "line")}
	l.waiter = e.startFar(t, far, dsn, "line", SessionOptions{IdleTimeout: suite.CutBound, ServerQueue: true})
	t.Cleanup(l.waiter.Kill)
	s.someoneWaits(t, "line")
	return l
}

// grantToTheDead gives back what the process at the far end waits for. It returns an error where the server had noticed before that this
// one is gone, and granted it to nobody.
func (l *farLine) grantToTheDead(t *testing.T, n *suite.Silence) error {
	t.Helper()
	suite.Release(t, l.lock)
	after := suite.Uptime() - n.Began
	for l.s.holder(t, "line") == 0 {
		if suite.Uptime() > n.Began+2*suite.CutBound {
			return fmt.Errorf("given back %v after the cut, and granted to nobody who waited: this shows nothing", after)
		}
	}
	l.next = suite.Take(t, l.other, "line")
	return nil
}

func (l *farLine) isFreed(t *testing.T, n *suite.Silence) *dblock.Lock {
	t.Helper()
	next := <-l.next
	n.InTime("what was granted to one that was cut off is free", next.At)
	return next.Lock
}
