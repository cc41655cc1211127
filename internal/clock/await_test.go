package clock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
)

// TestAwait: what has ended counts under a context that has ended, and so does what ends within the
// grace.
func TestAwait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		closed := make(chan struct{})
		close(closed)
		for range 100 {
			if err := clock.Await(ended, closed, 0, "x"); err != nil {
				t.Fatal(err)
			}
		}
		soon := func() { time.Sleep(clock.Grace / 2) }
		if err := clock.Await(ended, clock.After(soon), clock.Grace, "x"); err != nil {
			t.Error(err)
		}
		began := time.Now()
		err := clock.Await(ended, make(chan struct{}), clock.Grace, "x goes on")
		if !errors.Is(err, context.Canceled) || err.Error() != "dblock: x goes on: context canceled" {
			t.Error(err)
		}
		if took := time.Since(began); took != clock.Grace {
			t.Errorf("it took %v", took)
		}
	})
}
