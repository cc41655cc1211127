package inventory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

var errDead, errRefused = errors.New("the connection was dead"), errors.New("no server listens")

// restarted is a driver of a server that has started again.
type restarted struct{ driver.Driver }

func (restarted) Caps() driver.Caps { return driver.Caps{} }

func (restarted) Failure(err error) driver.Failure {
	return driver.Failure{Class: sqlerr.Unavailable, Dead: errors.Is(err, errDead)}
}

// TestAPoolOfDeadConnections: a call meets 20 dead connections of its pool one after the other, and
// succeeds with the next. Where no server listens, and where a proxy closes every connection, a
// call ends long before its time.
func TestAPoolOfDeadConnections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		dead  int
		after error // every attempt after those
		tries int   // in all
	}{
		{"a pool of dead connections", 20, nil, 21},
		{"no server", 0, errRefused, dialTries},
		{"dead connections, and no server", 20, errRefused, 20 + dialTries},
		{"a proxy without a server", 1000, nil, mostDead + dialTries},
	} {
		tries := 0
		err := newRetrier(restarted{}, time.Hour).do(t.Context(), attempt{}, func(context.Context, attempt) error {
			if tries++; tries <= c.dead {
				return errDead
			}
			return c.after
		})
		if succeeds := c.tries == c.dead+1; succeeds != (err == nil) || !succeeds && !errors.Is(err, dblock.ErrUnavailable) {
			t.Errorf("%s: %v", c.what, err)
		}
		if tries != c.tries {
			t.Errorf("%s: %d tries, want %d", c.what, tries, c.tries)
		}
	}
}

// waitingHook is a driver whose hook waits.
type waitingHook struct{ restarted }

func (waitingHook) Failure(error) driver.Failure {
	return driver.Failure{Class: sqlerr.Busy, Locked: true}
}

// TestAHookThatWaitsLeavesTheStock: a hook waits for a second in each attempt, and its order is
// tried for a minute. Its stock is locked for about a third of that.
func TestAHookThatWaitsLeavesTheStock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var kept time.Duration
		err := newRetrier(waitingHook{}, time.Minute).do(t.Context(), attempt{}, func(context.Context, attempt) error {
			time.Sleep(time.Second)
			kept += time.Second
			return &driver.HookBusy{Err: errRefused}
		})
		if !errors.Is(err, dblock.ErrBusy) {
			t.Error(err)
		}
		if kept < 10*time.Second || kept > 25*time.Second {
			t.Errorf("the stock was locked for %v of a minute", kept)
		}
	})
}
