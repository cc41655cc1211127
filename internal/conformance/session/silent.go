package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// silentIdle is the idle time-out of a test in which the server falls silent. Nothing else but a deadline may end a call before.
const silentIdle = 10 * time.Second

// aSilentServerKeepsNoCaller has the network fall silent while a lone caller uses a connection all the time. A call ends with its
// deadline, and a release after about a second, which says that the lock may have been lost.
func aSilentServerKeepsNoCaller(t *testing.T, s *env) {
	const deadline, bound, busy = 100 * time.Millisecond, time.Second, 2 * time.Second
	var dialer faultconn.Dialer
	l := s.processOn(t, &dialer, SessionOptions{IdleTimeout: silentIdle})
	held := suite.Acquire(t, l, "held")
	for range 3 { // the connection has answered just now
		suite.Release(t, suite.Acquire(t, l, "k"))
	}
	dialer.Arm(1, faultconn.Stall, nil)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	began := time.Now()
	_, err := l.TryAcquire(ctx, "k")
	if took := time.Since(began); took > deadline+busy {
		t.Errorf("a call with a deadline of %v took %v", deadline, took)
	}
	if held := suite.IsHeld(t, err, "k"); !errors.Is(held, context.DeadlineExceeded) {
		t.Errorf("%v does not say what ended the wait", held)
	}
	began = time.Now()
	err = held.Release(t.Context())
	if took := time.Since(began); took > bound+busy {
		t.Errorf("a release took %v", took)
	}
	if !errors.Is(err, dblock.ErrLost) {
		t.Errorf("a release that the server did not confirm returned %v", err)
	}
	dialer.Disarm()
	dialer.CloseAll()
}
