package session

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// aFrozenHolderIsFreed stops the process that has the lock: the server frees it in time, and when the process goes on it
// never counts on it again.
func aFrozenHolderIsFreed(t *testing.T, s *env) {
	other := s.process(t, SessionOptions{Poll: 20 * time.Millisecond})
	c := suite.StartChild(t, s.e.toCountOn(exec.CommandContext(suite.Soon(t), os.Args[0]), s.dsn, "k", SessionOptions{IdleTimeout: frozenIdle}))
	defer c.Kill()
	c.Held(t)
	time.Sleep(frozenIdle / 2) // it has pinged
	began := suite.Uptime()
	if err := suite.Suspend(c.Process); err != nil {
		t.Fatal(err)
	}
	next := suite.Acquire(t, other, "k")
	got := suite.Uptime()
	if took := got - began; took > frozenIdle+time.Second {
		t.Errorf("freed after %v, want %v and a second", took, frozenIdle)
	}
	if err := suite.Resume(c.Process); err != nil {
		t.Fatal(err)
	}
	last, _ := c.Counted(t, &dblock.LostError{Key: "k", Reason: dblock.Disconnected})
	if last > got {
		t.Errorf("it counted on the lock %v after another process had it", last-got)
	}
	suite.Release(t, next)
}

// aBlackHoleIsFreed takes the network away without a word: the server frees the lock in time, and its holder knows before.
func aBlackHoleIsFreed(t *testing.T, s *env) {
	var dialer faultconn.Dialer
	l := s.processOn(t, &dialer, SessionOptions{IdleTimeout: frozenIdle})
	other := s.process(t, SessionOptions{Poll: 20 * time.Millisecond})
	lock := suite.Acquire(t, l, "k")
	began := time.Now()
	dialer.Arm(1, faultconn.Stall, nil)
	suite.IsLost(t, lock, dblock.Disconnected)
	if took := time.Since(began); took > frozenIdle {
		t.Errorf("lost after %v, when the server may have freed it: want %v", took, frozenIdle)
	}
	suite.Release(t, suite.Acquire(t, other, "k"))
	dialer.Disarm()

	// The server's side: nobody tells it that the connection has ended.
	lock = suite.Acquire(t, l, "k")
	began = time.Now()
	dialer.Arm(1, faultconn.Late, nil)
	next := suite.Acquire(t, other, "k")
	if took := time.Since(began); took > frozenIdle+frozenIdle/3+time.Second { // its last statement may be a ping that is due
		t.Errorf("freed after %v, want %v and a second", took, frozenIdle)
	}
	suite.IsLost(t, lock, dblock.Disconnected)
	suite.Release(t, next)
	dialer.Disarm()
	dialer.Release()
}
