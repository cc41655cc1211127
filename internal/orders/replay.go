package orders

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dblock-go/dblock/inventory"
)

// HalfStock returns adjustments that stock each SKU with half of what the lines order of it,
// rounded up, so that some orders find none left. Their IDs stay the same, so they can be sent
// again. An SKU that needs more than inventory.MaxQty has several adjustments.
func HalfStock(lines []Line) []inventory.Adjustment {
	ordered := make(map[string]int64)
	for _, l := range lines {
		ordered[l.SKU] += max(0, l.Qty)
	}
	var stock []inventory.Adjustment
	for _, sku := range slices.Sorted(maps.Keys(ordered)) {
		left := (ordered[sku] + 1) / 2
		for n := 1; n == 1 || left > 0; n++ {
			delta := min(left, inventory.MaxQty)
			stock = append(stock, inventory.Adjustment{ID: stockID(sku, n), SKU: sku, Delta: delta})
			left -= delta
		}
	}
	return stock
}

// stockID is the ID of the nth adjustment of an SKU. An SKU may be as long as an ID, so it is
// hashed. The key of a line has a slash, and this has none.
func stockID(sku string, n int) string {
	return fmt.Sprintf("stock:%x:%d", sha256.Sum256([]byte(sku)), n)
}

// Report counts what became of the lines of one replay.
type Report struct {
	Accepted int `json:"accepted"`
	SoldOut  int `json:"sold_out"`
	Returned int `json:"returned"`
	Seen     int `json:"already_seen"` // recorded before: nothing was changed
}

// Replay sends every line from that many goroutines at once, and counts the answers. It ends at
// the first line that gets none. done is called after each line.
func Replay(ctx context.Context, store *inventory.Store, lines []Line, workers int, done func()) (Report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var mu sync.Mutex
	var total Report
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			var mine Report
			for i := next.Add(1) - 1; int(i) < len(lines) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := mine.send(ctx, store, lines[i]); err != nil {
					cancel(fmt.Errorf("line %d (%s): %w", lines[i].Number, lines[i].Key, err))
				}
				done()
			}
			mu.Lock()
			defer mu.Unlock()
			total.add(mine)
		})
	}
	wg.Wait()
	return total, context.Cause(ctx)
}

// send sends one line and counts its answer.
func (r *Report) send(ctx context.Context, store *inventory.Store, l Line) error {
	if l.Qty < 0 {
		replayed, err := store.Restock(ctx, inventory.Adjustment{ID: l.Key, SKU: l.SKU, Delta: -l.Qty})
		switch {
		case err != nil:
			return err
		case replayed:
			r.Seen++
		default:
			r.Returned++
		}
		return nil
	}
	res, err := store.Reserve(ctx, inventory.Request{Key: l.Key, SKU: l.SKU, Buyer: l.Buyer, Qty: l.Qty})
	switch {
	case err != nil && !errors.Is(err, inventory.ErrSoldOut):
		return err
	case res.Replayed:
		r.Seen++
	case err != nil:
		r.SoldOut++
	default:
		r.Accepted++
	}
	return nil
}

func (r *Report) add(o Report) {
	r.Accepted += o.Accepted
	r.SoldOut += o.SoldOut
	r.Returned += o.Returned
	r.Seen += o.Seen
}
