package conformance

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// startSessionHolder starts a process that has the key.
func (s *sessionPlace) startSessionHolder(t *testing.T, ctx context.Context) *child {
	t.Helper()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), sessionDSN+"="+s.dsn, sessionKind+"="+string(s.e.Kind))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &child{cmd, bufio.NewScanner(out), in}
}

// aFrozenHolderIsFreed stops the process that has the lock: the server frees it in time, and when the process goes on it
// never counts on it again.
func aFrozenHolderIsFreed(t *testing.T, s *sessionPlace) {
	other := s.process(t, SessionOptions{Poll: 20 * time.Millisecond})
	c := s.startSessionHolder(t, soon(t))
	defer c.kill()
	c.says(t, "held")
	time.Sleep(frozenIdle / 2) // it has pinged
	began := time.Now()
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	next := acquire(t, other, "k")
	got := time.Now()
	if took := got.Sub(began); took > frozenIdle+time.Second {
		t.Errorf("freed after %v, want %v and a second", took, frozenIdle)
	}
	if err := c.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !c.lines.Scan() {
		t.Fatal("the process is gone")
	}
	last, err := strconv.ParseInt(strings.TrimPrefix(c.lines.Text(), "trusted until "), 10, 64)
	if err != nil || time.Unix(0, last).After(got) {
		t.Errorf("it counted on the lock %v after another process had it (%q)", time.Unix(0, last).Sub(got), c.lines.Text())
	}
	c.says(t, (&dblock.LostError{Key: "k", Reason: dblock.Disconnected}).Error())
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
