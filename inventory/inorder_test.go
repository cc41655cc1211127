package inventory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// contested is a driver on which other processes always have some SKU of a cart locked, briefly. A
// statement gets the SKU that it waits for, and no other one, unless it waits for all in order.
// "slow" is locked until release is closed.
type contested struct {
	carts
	release  chan struct{}
	inOrder  atomic.Int64
	lingered atomic.Int64
}

func (e *contested) Transact(_ context.Context, ask driver.ReadRequest, decide func(driver.Books) driver.Plan) error {
	if ask.InOrder {
		e.inOrder.Add(1)
	}
	if _, passes := ask.Waits(); ask.Lingers && slices.Contains(passes, "slow") {
		e.lingered.Add(1)
	}
	books := driver.Books{Stock: make(map[string][]driver.Bucket)}
	waits, _ := ask.Waits()
	for _, sku := range waits {
		if sku == "slow" {
			<-e.release
		}
		books.Stock[sku] = []driver.Bucket{{Left: 1000}}
	}
	books.Skipped = func(sku string) bool { return !slices.Contains(waits, sku) }
	decide(books)
	return nil
}

func cartOf(key string, skus ...string) Cart {
	c := Cart{Key: key, Buyer: "b"}
	for _, sku := range skus {
		c.Lines = append(c.Lines, Line{SKU: sku, Qty: 1})
	}
	return c
}

// TestACartThatHasWaitedWaitsInOrder: a cart that has waited for one SKU and finds another one
// locked waits for all, unless one of them is locked for long.
func TestACartThatHasWaitedWaitsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, err := Options{}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		e := &contested{release: make(chan struct{})}
		s := newStore(e, o)
		if _, err := s.ReserveAll(t.Context(), cartOf("first", "a", "b", "c")); err != nil {
			t.Error(err)
		}
		if e.inOrder.Load() == 0 {
			t.Error("the cart was sold without a wait in order")
		}
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := s.ReserveAll(t.Context(), cartOf("waits", "slow", "z")); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(2 * slowWait)
		synctest.Wait()
		e.inOrder.Store(0)
		for i := range 10 {
			all.Go(func() {
				if _, err := s.ReserveAll(t.Context(), cartOf(fmt.Sprint(i), "a", "slow")); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		if n := e.inOrder.Load(); n > 0 {
			t.Errorf("%d statements kept an SKU locked while they waited for one that is locked for long", n)
		}
		if n := e.lingered.Load(); n > 0 {
			t.Errorf("%d statements waited with an SKU locked for one that is locked for long", n)
		}
		close(e.release)
		all.Wait()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
