package inventory

import (
	"context"
	"sync"
	"time"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// Carts of several processes lock the same SKUs. A cart that has waited for one SKU, and then finds
// another one locked, may find that again and again. So it then waits for all of its SKUs, in the
// order in which all transactions lock them, for driver.InOrderTime. It has some of them locked
// meanwhile, which delays others. Therefore it does so only for SKUs that are presumably locked
// briefly.

const (
	slowWait = 2 * driver.InOrderTime // a wait for an SKU that is longer
	slowFor  = time.Second            // after an SKU was found locked for long
)

// slowSKUs are the SKUs that others have locked for long.
type slowSKUs struct {
	mu    sync.Mutex
	waits map[string]time.Time // since when a statement waits for an SKU alone
	found keysInUse
}

// begin notes that a statement waits for an SKU alone, until end.
func (w *slowSKUs) begin(sku string) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waits == nil {
		w.waits = make(map[string]time.Time)
	}
	w.waits[sku] = time.Now()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if time.Since(w.waits[sku]) > slowWait {
			w.found.note(sku, slowFor)
		}
		delete(w.waits, sku)
	}
}

// has reports whether others have an SKU of some orders locked for long. but is one that does not
// count.
func (w *slowSKUs) has(orders []order, but string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range orders {
		for _, l := range orders[i].each() {
			if l.SKU == but {
				continue
			}
			if since, waits := w.waits[l.SKU]; waits && time.Since(since) > slowWait || w.found.has(l.SKU) {
				return true
			}
		}
	}
	return false
}

// sellInOrder decides those carts of a lane that have found another SKU locked. It waits for all of
// their SKUs in order.
func (s *seller) sellInOrder(ctx context.Context, orders []order, results []result) {
	var carts []order
	var at []int
	for i, r := range results {
		if r.Alone && isStockLane(r.Behind) && orders[i].lines != nil {
			carts, at = append(carts, orders[i]), append(at, i)
		}
	}
	if len(carts) == 0 || s.slow.has(carts, "") {
		return
	}
	decided, err := s.settle(ctx, carts, attempt{locks: waitBriefly, inOrder: true, conflicts: ofBatch})
	for n, i := range at {
		switch {
		case err == nil:
			results[i] = decided[n]
		case !isBlocked(err) && !ranOut(err): // else it waits as it has to
			results[i] = result{Err: err}
		}
	}
}
