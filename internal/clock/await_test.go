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
			if err := clock.Await(ended, closed, "x"); err != nil {
				t.Fatal(err)
			}
		}
		late, stop := clock.Late(ended)
		defer stop()
		if err := clock.Await(late, clock.After(func() { time.Sleep(time.Second / 2) }), "x"); err != nil {
			t.Error(err)
		}
		began := time.Now()
		err := clock.Await(late, make(chan struct{}), "x goes on")
		if !errors.Is(err, context.Canceled) || err.Error() != "dblock: x goes on: context canceled" {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Second/2 {
			t.Errorf("it took %v", took)
		}
	})
}
