package mysqllock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
)

// TestABusyProcessLetsOthersHaveASessionLock: a process that has waited for a key once, and whose
// callers want it all the time, lets another process have it.
func TestABusyProcessLetsOthersHaveASessionLock(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db := testdb.MySQLOn(t, kind)
			locker := func() dblock.Locker {
				l, err := mysqllock.NewSessionLocker(t.Context(), db, mysqllock.SessionOptions{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = l.Close(context.Background()) })
				return l
			}
			busy, other := locker(), locker()
			held, err := other.Acquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			defer all.Wait()
			defer stop()
			served := make(chan struct{}, 3)
			for range 3 {
				all.Go(func() {
					for ctx.Err() == nil {
						lock, err := busy.Acquire(ctx, "k")
						if err != nil {
							return
						}
						select {
						case served <- struct{}{}:
						default:
						}
						_ = lock.Release(context.Background())
					}
				})
			}
			time.Sleep(200 * time.Millisecond) // until they have found it held, and show that they wait
			if err := held.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-served
			within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			lock, err := other.Acquire(within, "k")
			if err != nil {
				t.Fatal(err)
			}
			if err := lock.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
