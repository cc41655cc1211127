package optimistic

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/optimistic"
)

// nestedInOppositeOrders: two updates that each hold the lock of their row, and update the other's row within,
// don't wait for each other for ever. Both are written.
func nestedInOppositeOrders(l *ledger) {
	ctx, cancel := context.WithTimeout(l.Context(), 30*time.Second)
	defer cancel()
	var locked, all sync.WaitGroup
	locked.Add(2)
	var inner [3]atomic.Int64 // nested updates that were written, by row
	for _, id := range []int64{1, 2} {
		other := 3 - id
		attempts := 0
		all.Go(func() {
			_, err := l.pool.Update(ctx, Change{ID: id, Mutate: func(ctx context.Context, a *Account) error {
				if attempts++; attempts == 1 { // fail, so that the next attempt takes the row's lock
					l.intrude(id, 1000)
					return nil
				}
				if attempts == 2 {
					locked.Done()
					locked.Wait()
				}
				_, err := l.pool.Update(ctx, Change{ID: other, Mutate: add(10)}, l.pool.Escalate(1, other))
				if err == nil {
					inner[other].Add(1)
				}
				a.Balance++
				return err
			}}, l.pool.Escalate(1, id), optimistic.Attempts(30))
			if err != nil {
				l.Errorf("row %d: %v", id, err)
			}
		})
	}
	all.Wait()
	for id := int64(1); id <= 2; id++ {
		if got, want := l.row(id).Balance, 100+1000+1+10*inner[id].Load(); got != want {
			l.Errorf("row %d: the balance is %d, want %d", id, got, want)
		}
	}
}
