package conformance

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// aFrozenHolderIsFreed stops the process that has the lock: the server frees it in time, and when the process goes on it
// never counts on it again.
func aFrozenHolderIsFreed(t *testing.T, s *sessionPlace) {
	other := s.process(t, SessionOptions{Poll: 20 * time.Millisecond})
	c := startChild(t, s.e.toCountOn(exec.CommandContext(soon(t), os.Args[0]), s.dsn, "k", SessionOptions{IdleTimeout: frozenIdle}))
	defer c.kill()
	c.held(t)
	time.Sleep(frozenIdle / 2) // it has pinged
	began := uptime()
	if err := suspend(c.Process); err != nil {
		t.Fatal(err)
	}
	next := acquire(t, other, "k")
	got := uptime()
	if took := got - began; took > frozenIdle+time.Second {
		t.Errorf("freed after %v, want %v and a second", took, frozenIdle)
	}
	if err := resume(c.Process); err != nil {
		t.Fatal(err)
	}
	last, _ := c.counted(t, &dblock.LostError{Key: "k", Reason: dblock.Disconnected})
	if last > got {
		t.Errorf("it counted on the lock %v after another process had it", last-got)
	}
	release(t, next)
}

// aBlackHoleIsFreed takes the network away without a word: the server frees the lock in time, and its holder knows before.
func aBlackHoleIsFreed(t *testing.T, s *sessionPlace) {
	var dialer faultconn.Dialer
	l := s.processOn(t, &dialer, SessionOptions{IdleTimeout: frozenIdle})
	other := s.process(t, SessionOptions{Poll: 20 * time.Millisecond})
	lock := acquire(t, l, "k")
	began := time.Now()
	dialer.Arm(1, faultconn.Stall, nil)
	isLost(t, lock, dblock.Disconnected)
	if took := time.Since(began); took > frozenIdle {
		t.Errorf("lost after %v, when the server may have freed it: want %v", took, frozenIdle)
	}
	release(t, acquire(t, other, "k"))
	dialer.Disarm()

	// The server's side: nobody tells it that the connection has ended.
	lock = acquire(t, l, "k")
	began = time.Now()
	dialer.Arm(1, faultconn.Late, nil)
	next := acquire(t, other, "k")
	if took := time.Since(began); took > frozenIdle+frozenIdle/3+time.Second { // its last statement may be a ping that is due
		t.Errorf("freed after %v, want %v and a second", took, frozenIdle)
	}
	isLost(t, lock, dblock.Disconnected)
	release(t, next)
	dialer.Disarm()
	dialer.Release()
}
