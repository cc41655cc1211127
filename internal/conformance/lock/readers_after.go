package lock

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// aWriterLeavesNoTrace has readers of another process ask for a key after a writer has waited for
// it, and has been served or has given up: they get it at once, and not when the writer's mark has
// ended, which lasts for a second.
func aWriterLeavesNoTrace(t *testing.T, v *env) {
	reader, writer, later := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	for name, served := range map[string]bool{"served": true, "gave up": false} {
		var took []time.Duration
		for range 9 {
			first := suite.Acquire(t, reader, "k", dblock.WithShared())
			ctx, giveUp := context.WithCancel(suite.Soon(t))
			got := make(chan *dblock.Lock, 1)
			go func() {
				lock, _ := writer.Acquire(ctx, "k")
				got <- lock
			}()
			for marked := time.Now().Add(500 * time.Millisecond); time.Now().Before(marked); time.Sleep(5 * time.Millisecond) {
				next, err := later.TryAcquire(t.Context(), "k", dblock.WithShared())
				if err != nil {
					break // the writer has readers stand back
				}
				suite.Release(t, next)
			}
			if served {
				suite.Release(t, first)
			} else {
				giveUp()
			}
			if lock := <-got; lock != nil {
				suite.Release(t, lock)
			}
			giveUp()
			began := time.Now()
			next := suite.Acquire(t, later, "k", dblock.WithShared())
			took = append(took, time.Since(began))
			suite.Release(t, next)
			if !served {
				suite.Release(t, first)
			}
		}
		slices.Sort(took)
		t.Logf("%s: a reader waits for %v", name, took)
		if median := took[len(took)/2]; median > 500*time.Millisecond {
			t.Errorf("after a writer that %s, a reader waits for %v", name, median)
		}
	}
}
