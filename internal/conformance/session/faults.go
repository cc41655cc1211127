package session

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// frozenIdle is after how long the server frees what a frozen process has.
const frozenIdle = 2 * time.Second

// ABlackHoleIsFreed takes the network away without a word, on both sides or from the server to the
// client: another process has the lock soon, and by then its holder does not count on it any more.
func (faultTests) ABlackHoleIsFreed(t *testing.T, s *env) {
	var dialer faultconn.Dialer
	l := s.processOn(t, &dialer, SessionOptions{IdleTimeout: frozenIdle})
	other := s.process(t, quick)
	for _, mode := range []faultconn.Mode{faultconn.Stall, faultconn.Late} {
		lock := suite.Acquire(t, l, "k")
		dialer.Arm(1, mode, nil)
		next := suite.Acquire(t, other, "k")
		assert.False(t, time.Now().Before(lock.ValidUntil()), "%v: another process has it while it is valid", mode)
		suite.IsLost(t, lock, dblock.Disconnected)
		suite.Release(t, next)
		dialer.Disarm()
		dialer.Release()
	}
}

// ASilentServerKeepsNoCaller has the network fall silent. A call ends with its deadline, and a
// release soon: it says that the lock may have been lost. Without bounds of their own both would
// wait for half of the idle time-out.
func (faultTests) ASilentServerKeepsNoCaller(t *testing.T, s *env) {
	const idle, soon = 4 * time.Minute, 30 * time.Second
	var dialer faultconn.Dialer
	l := s.processOn(t, &dialer, SessionOptions{IdleTimeout: idle})
	held := suite.Acquire(t, l, "held")
	for range 3 { // the connection has answered just now
		suite.IsFree(t, l, "k")
	}
	dialer.Arm(1, faultconn.Stall, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := l.TryAcquire(ctx, "k")
	assert.Less(t, time.Since(began), soon)
	assert.ErrorIs(t, suite.IsHeld(t, err, "k"), context.DeadlineExceeded)
	began = time.Now()
	assert.ErrorIs(t, held.Release(t.Context()), dblock.ErrLost)
	assert.Less(t, time.Since(began), soon)
	dialer.Disarm()
	dialer.CloseAll()
}

// childEnv is what a test has a process do, as JSON.
const childEnv = "DBLOCK_TEST_SESSION"

// counting is a process that counts on a key.
type counting struct {
	DSN, Key string
	Options  SessionOptions
}

// Main does what a test has started this process for, and then never returns. Call it first in
// TestMain.
func (e Session) Main() {
	text := os.Getenv(childEnv)
	if text == "" {
		return
	}
	var c counting
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		var l dblock.Locker
		if l, _, err = e.Open(context.Background(), c.DSN, nil, c.Options); err == nil {
			err = suite.CountOn(context.Background(), l, c.Key)
		}
	}
	fmt.Fprintln(os.Stderr, "session:", err)
	os.Exit(1)
}
