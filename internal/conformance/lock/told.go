package lock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

const ofThisProcess = "another caller of this process"

// errorsSayWhatIsKnown: the error of a call that did not acquire its lock names a holder only if one is known.
func errorsSayWhatIsKnown(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{Label: "process a"}), p.process(t, LeaseOptions{Label: "process b"})
	ended, cancel := context.WithCancel(suite.Soon(t))
	cancel()
	for name, call := range map[string]func() (*dblock.Lock, error){
		"Acquire":       func() (*dblock.Lock, error) { return a.Acquire(ended, "free") },
		"TryAcquire":    func() (*dblock.Lock, error) { return a.TryAcquire(ended, "free") },
		"AcquireAll":    func() (*dblock.Lock, error) { return a.AcquireAll(ended, []string{"free", "too"}) },
		"readers":       func() (*dblock.Lock, error) { return a.Acquire(ended, "free", dblock.WithShared()) },
		"permits":       func() (*dblock.Lock, error) { return a.Acquire(ended, "free", dblock.WithPermits(1, 2)) },
		"TryAcquireAll": func() (*dblock.Lock, error) { return a.TryAcquireAll(ended, []string{"free", "too"}) },
	} {
		_, err := call()
		says(t, name+" of a context that has ended", err, "before the server was asked", "held by")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}

	first := suite.Acquire(t, b, "k")
	_, err := a.TryAcquire(suite.Soon(t), "k")
	says(t, "a key of another process", err, "process b", ofThisProcess)

	waits := make(chan *dblock.Lock)
	go func() {
		lock, err := a.Acquire(suite.Soon(t), "k")
		if err != nil {
			t.Error(err)
		}
		waits <- lock
	}()
	for !isWaitedFor(t, b) {
		time.Sleep(time.Millisecond)
	}
	suite.Release(t, first)
	second := <-waits
	if second == nil {
		return
	}
	_, err = a.TryAcquire(suite.Soon(t), "k")
	says(t, "a key of this process", err, ofThisProcess, "process b")
	suite.Release(t, second)
}

// isWaitedFor tells whether a call waits for the one lock that is held.
func isWaitedFor(t *testing.T, l Leases) bool {
	t.Helper()
	held, err := l.Held(suite.Soon(t))
	if err != nil || len(held) != 1 {
		t.Fatalf("held: %+v, %v", held, err)
	}
	return held[0].Waiters > 0
}

// says fails unless err is dblock.ErrNotAcquired, says one thing and does not say another.
func says(t *testing.T, what string, err error, want, not string) {
	t.Helper()
	if !errors.Is(err, dblock.ErrNotAcquired) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), not) {
		t.Errorf("%s: %v; want %q, and not %q", what, err, want, not)
	}
}
