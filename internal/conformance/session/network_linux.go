package session

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/testdb"
)

// runCut runs what takes a network that can be cut, if the machine has one.
func (e Session) runCut(t *testing.T) { suite.RunCut(t, e.Kind, e.aNetworkFallsSilent) }

// aNetworkFallsSilent: the server frees the lock of a process that was cut off within the
// IdleTimeout, after its holder has ceased to count on it. The same holds for a lock that the
// server has granted to a waiter it could not reach.
func (e Session) aNetworkFallsSilent(t *testing.T) error {
	near, far := testdb.OwnNear(t, e.Kind)
	s := e.env(suite.OpenDB(t, e.Kind, near))
	other := s.process(t, quick)
	n := suite.NewSilence(t, func(m *testdb.Far, key string, bound time.Duration) *suite.Child {
		return e.startFar(t, m, far, key, SessionOptions{IdleTimeout: bound})
	})
	line := suite.Acquire(t, other, "line")
	waiter := e.startFar(t, n.Far, far, "line", SessionOptions{IdleTimeout: suite.CutBound, ServerQueue: true})
	t.Cleanup(waiter.Kill)
	s.untilWaiters(t, "line", 1)
	id, control := s.holder(t, "k"), s.holder(t, "control")
	if id == 0 || control == 0 {
		suite.Release(t, line)
		return fmt.Errorf("before the cut the keys are held by %d and %d: this shows nothing", id, control)
	}
	got := n.Fall(t, other)
	suite.Release(t, line)
	for s.holder(t, "line") == 0 {
		if suite.Uptime() > n.Began+2*suite.CutBound { // the server had noticed before that the waiter is gone
			n.Far.Mend(t)
			suite.Release(t, (<-got).Lock)
			return fmt.Errorf("released after the cut, and granted to no waiter: this shows nothing")
		}
	}
	ofLine := suite.Take(t, other, "line")
	suite.Until(t, "the server frees the lock", func() bool { return s.holder(t, "k") != id })
	freed := suite.Uptime()
	next := <-got
	n.InTime("the waiter has it", next.At)
	atTheCut := n.Check(t, freed, dblock.ReasonDisconnected)
	if atTheCut {
		assert.Equal(t, control, s.holder(t, "control"), "something else than silence ended the control's session")
	}
	after := <-ofLine
	n.InTime("what was granted to one that was cut off is free", after.At)
	n.Far.Mend(t)
	if !atTheCut {
		suite.Release(t, next.Lock)
		suite.Release(t, after.Lock)
		return n.Late
	}
	suite.Follows(t, n.Holder, next.Lock)
	suite.Follows(t, waiter, after.Lock)
	return n.Late
}

func (e Session) startFar(t *testing.T, far *testdb.Far, dsn, key string, o SessionOptions) *suite.Child {
	t.Helper()
	cmd := far.Command(t.Context(), os.Args[0])
	text := suite.Must(json.Marshal(counting{dsn, key, o}))(t)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	return suite.StartChild(t, cmd)
}
