package clock_test

import (
	"context"
	"errors"
	"sync"
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

// TestProgress: it waits as long as less is left from time to time.
func TestProgress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		steps    int // of half a second each
		finishes bool
	}{{20, true}, {7, false}, {0, false}} {
		synctest.Test(t, func(t *testing.T) {
			left := c.steps
			if !c.finishes {
				left += 5
			}
			var mu sync.Mutex
			done := make(chan struct{})
			go func() {
				for range c.steps {
					time.Sleep(time.Second / 2)
					mu.Lock()
					left--
					mu.Unlock()
				}
				if c.finishes {
					close(done)
				}
			}()
			began := time.Now()
			finished := clock.Progress(done, time.Second, func() int {
				mu.Lock()
				defer mu.Unlock()
				return left
			})
			steps := time.Duration(c.steps) * time.Second / 2
			if took := time.Since(began); finished != c.finishes || took < steps || took > steps+2*time.Second {
				t.Errorf("%+v: %v after %v", c, finished, took)
			}
		})
	}
}
