package inventory

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// lockedStock is a driver on which the stock of all SKUs is locked.
type lockedStock struct{ driver.Driver }

var errStockLocked = errors.New("locked")

func (lockedStock) Caps() driver.Caps { return driver.Caps{Batches: true} }

func (lockedStock) Failure(error) driver.Failure {
	return driver.Failure{Class: sqlerr.Busy, Locked: true, Own: true}
}

func (lockedStock) Transact(context.Context, driver.ReadRequest, func(driver.Books) driver.Plan) error {
	return errStockLocked
}

// TestOrdersOfSeveralLanesWaitForNone: a statement that carries them ends as one that was not to
// wait. It does not say that the time of all of them is over.
func TestOrdersOfSeveralLanesWaitForNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := lockedStock{}
		s := &seller{
			driver: d, caps: d.Caps(), retry: &retrier{driver: d, timeout: time.Minute}, cache: newCache(time.Minute), allotments: &allotments{},
		}
		begin := make(chan struct{})
		var lanes int
		var met error
		q := batch.New(batch.Options[order, outcome]{
			Key: func(o order) string { return o.SKU }, MaxInFlight: 1, Waiters: 4,
			Run: func(ctx context.Context, orders []order, _ bool) ([]result, error) {
				<-begin
				if len(orders) > 1 {
					lanes = len(orders)
					_, met = s.sellBehind(ctx, orders, batch.Key(ctx))
				}
				return make([]result, len(orders)), nil
			},
		})
		var all sync.WaitGroup
		for _, sku := range []string{"first", "a", "b"} {
			all.Go(func() { _, _ = q.Do(t.Context(), order{Request: req(sku, sku, 1)}) })
			synctest.Wait()
		}
		close(begin)
		all.Wait()
		if lanes != 2 || !isBlocked(met) || ranOut(met) {
			t.Errorf("orders of %d lanes: %v", lanes, met)
		}
	})
}
