package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/queue/internal/driver"
)

// exhausted is a driver whose pool has no connection left.
type exhausted struct {
	driver.Driver
	is bool
}

func (d exhausted) Exhausted() bool { return d.is }

// TestATaskWithoutAConnectionIsGivenUp: a task that waits for a connection is given up before it
// fails. One that gets answers is not, nor one that waits for the server.
func TestATaskWithoutAConnectionIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		exhausted, answered bool
		want                time.Duration // 0: it is not given up
	}{
		"no connection":   {true, false, slowFailure},
		"it gets answers": {true, true, 0},
		"a slow server":   {false, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &maintainer{q: &Queue{driver: exhausted{is: c.exhausted}}}
			ctx, end := context.WithTimeout(t.Context(), 10*time.Second)
			defer end()
			var answers int64
			began, gaveUp := time.Now(), time.Duration(0)
			stop := m.watch(maintenanceTask{answers: func() int64 {
				if c.answered {
					answers++
				}
				return answers
			}}, func() { gaveUp = time.Since(began) })
			<-ctx.Done()
			stop()
			synctest.Wait()
			if gaveUp != c.want {
				t.Errorf("%s: given up after %v, want %v", name, gaveUp, c.want)
			}
		})
	}
}
