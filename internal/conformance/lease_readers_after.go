package conformance

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

// aWriterLeavesNoTrace has readers of another process ask for a key after a writer has waited for
// it, and has been served or has given up: they get it at once, and not when the writer's mark has
// ended, which lasts for a second.
func aWriterLeavesNoTrace(t *testing.T, v *vault) {
	reader, writer, later := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	for name, served := range map[string]bool{"served": true, "gave up": false} {
		var took []time.Duration
		for range 9 {
			first := acquire(t, reader, "k", dblock.WithShared())
			ctx, giveUp := context.WithCancel(soon(t))
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
				release(t, next)
			}
			if served {
				release(t, first)
			} else {
				giveUp()
			}
			if lock := <-got; lock != nil {
				release(t, lock)
			}
			giveUp()
			began := time.Now()
			next := acquire(t, later, "k", dblock.WithShared())
			took = append(took, time.Since(began))
			release(t, next)
			if !served {
				release(t, first)
			}
		}
		slices.Sort(took)
		t.Logf("%s: a reader waits for %v", name, took)
		if median := took[len(took)/2]; median > 500*time.Millisecond {
			t.Errorf("after a writer that %s, a reader waits for %v", name, median)
		}
	}
}
