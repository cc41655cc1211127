package conformance

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// aSilentOneKnows: a process whose connection goes dead, so that nobody is told, takes its locks for lost before others have them.
func aSilentOneKnows(t *testing.T, s *sessionPlace) {
	s.silence(t, faultconn.Stall, func(lock *dblock.Lock) {
		if lock.Context().Err() == nil {
			t.Error("another one has the lock, and its holder was not told that it is lost")
		}
	})
}

// aSilentOneIsFreed: nor does the server hear that a connection has ended, and it gives the locks to others all the same, when the
// idle time-out has passed and not before.
func aSilentOneIsFreed(t *testing.T, s *sessionPlace) {
	began := time.Now()
	s.silence(t, faultconn.Late, func(*dblock.Lock) {
		if took := time.Since(began); took < silentFor {
			t.Errorf("freed after %v, by something else than the idle time-out of %v", took, silentFor)
		}
	})
}

const silentFor = 2 * time.Second

// silence breaks the connection of a holder, and waits until another process has its lock.
func (s *sessionPlace) silence(t *testing.T, how faultconn.Mode, then func(*dblock.Lock)) {
	var dialer faultconn.Dialer
	a := s.processOn(t, &dialer, SessionOptions{IdleTimeout: silentFor, Raw: true}) // raw: no key is noted, on other connections
	b := s.process(t, SessionOptions{Raw: true})
	key := strconv.FormatInt(time.Now().UnixNano(), 10)
	lock := acquire(t, a, key)
	dialer.Arm(1, how, nil)
	next := acquire(t, b, key)
	then(lock)
	if err := lock.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
		t.Errorf("release of what was lost: %v", err)
	}
	release(t, next)
	dialer.Release()
}

// aDeadOneIsFreedAtOnce closes the connections of a process, as its death does: nobody waits for the idle time-out.
func aDeadOneIsFreedAtOnce(t *testing.T, s *sessionPlace) {
	var dialer faultconn.Dialer
	a := s.processOn(t, &dialer, SessionOptions{IdleTimeout: time.Hour})
	b := s.process(t, SessionOptions{})
	lock := acquire(t, a, "k")
	dialer.CloseAll()
	release(t, acquire(t, b, "k"))
	if a.Caps().Shared { // Postgres' connection is listened to; elsewhere the next ping would tell
		isLost(t, lock, dblock.Disconnected)
	} else {
		_ = lock.Release(t.Context())
	}
}
