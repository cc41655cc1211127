package conformance

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inventory"
)

// keysOpenElsewhereStallNobody has a transaction that stays open record orders of another SKU under some keys. Orders under the same keys
// for a hot SKU wait. All others for the hot SKU are sold meanwhile, however often the open keys are sent again.
func keysOpenElsewhereStallNobody(open int) func(t *testing.T, s *shop) {
	return func(t *testing.T, s *shop) {
		const rounds, perRound = 8, 40
		s.stock(t, "hot", int64(rounds*(perRound+1)+open))
		keys := named("open", open)
		statements := make([]string, open)
		for i, key := range keys {
			statements[i] = "INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state) VALUES ('" + key + "', 'cold', '', 1, 2)"
		}
		letGo := s.lockRows(t, statements...)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var all sync.WaitGroup
		waited := make(chan told, open*rounds)
		for round := range rounds {
			for _, key := range keys {
				all.Go(func() {
					r := order(key, "hot", 1)
					res, err := s.Reserve(t.Context(), r)
					waited <- told{r, res, err}
				})
			}
			for _, a := range crowd(ctx, s.Store, ordersOf(fmt.Sprint("round ", round), perRound, "hot")) {
				if a.err != nil {
					t.Fatalf("%s, beside %d keys that are open elsewhere: %v", a.req.Key, open, a.err)
				}
			}
			if _, err := s.Reserve(ctx, order(fmt.Sprint("alone ", round), "hot", 1)); err != nil {
				t.Fatalf("an order that comes alone, beside %d keys that are open elsewhere: %v", open, err)
			}
		}
		if n := len(waited); n > 0 {
			t.Errorf("%d orders did not wait for their keys", n)
		}
		letGo()
		all.Wait()
		close(waited)
		sold := make(map[string]int)
		for a := range waited {
			if a.err != nil || a.res.State != inventory.Sold {
				t.Errorf("%s, which waited: %+v, %v", a.req.Key, a.res, a.err)
			}
			if !a.res.Replayed {
				sold[a.req.Key]++
			}
		}
		for _, key := range keys {
			if sold[key] != 1 {
				t.Errorf("%s was sold %d times", key, sold[key])
			}
		}
		s.wantsBooks(t, "hot", 0, 0, int64(rounds*(perRound+1)+open))
		s.sound(t)
	}
}
