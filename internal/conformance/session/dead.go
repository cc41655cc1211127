package session

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// aDeadOneIsFreedAtOnce closes the connections of a process, as its death does: nobody waits for the idle time-out.
func aDeadOneIsFreedAtOnce(t *testing.T, s *env) {
	var dialer faultconn.Dialer
	a := s.processOn(t, &dialer, SessionOptions{IdleTimeout: time.Hour})
	b := s.process(t, SessionOptions{})
	lock := suite.Acquire(t, a, "k")
	dialer.CloseAll()
	suite.Release(t, suite.Acquire(t, b, "k"))
	if a.Caps().Shared { // Postgres' connection is listened to; elsewhere the next ping would tell
		suite.IsLost(t, lock, dblock.Disconnected)
	} else {
		_ = lock.Release(t.Context())
	}
}
