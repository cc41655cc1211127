// Package sale is a flash sale: many buyers want one unit of the same SKU at the same moment, and
// each gets a result.
package sale

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory"
)

// Store sells. An *inventory.Store is one.
type Store interface {
	Restock(context.Context, inventory.Adjustment) (replayed bool, err error)
	Reserve(context.Context, inventory.Request) (inventory.Reservation, error)
	Audit(ctx context.Context, skus ...string) ([]inventory.Balance, error)
}

// Sale is one sale: every buyer tries once to buy one unit.
type Sale struct {
	Name   string // prefix of the orders' keys and name of the SKU
	Buyers int
	Stock  int64
	Seed   uint64 // decides the order of the buyers
}

// Result is what the buyers saw, and what the books say.
type Result struct {
	Sold    int64         // buyers that got a unit
	SoldOut int64         // buyers that got "sold out"
	Busy    int64         // buyers that got "busy"
	Failed  int64         // buyers that got another error
	Failure error         // the first of that
	Took    time.Duration // from the start to the last answer that said sold
	Latency *hdrhistogram.Histogram
	Balance inventory.Balance

	Oversold   int64 // units sold beyond the stock
	Unrecorded int64 // sales that were confirmed to buyers and are not in the books
	LostSales  int64 // units left that a refused buyer would have bought
}

// Histogram returns one for latencies in microseconds, up to a minute, to three digits.
func Histogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, time.Minute.Microseconds(), 3) }

// Run stocks the SKU, lets the buyers in at once, and audits the books. done is called after each
// answer.
func (s Sale) Run(ctx context.Context, store Store, done func()) (Result, error) {
	stock := inventory.Adjustment{ID: s.Name, SKU: s.Name, Delta: s.Stock}
	if _, err := store.Restock(ctx, stock); err != nil {
		return Result{}, err
	}
	r := Result{Latency: Histogram()}
	s.open(ctx, store, &r, done)
	books, err := store.Audit(ctx, s.Name)
	if err != nil {
		return r, err
	}
	if len(books) != 1 {
		return r, fmt.Errorf("sale: the books hold %d entries for %q", len(books), s.Name)
	}
	r.Balance = books[0]
	r.Oversold = max(0, r.Balance.Sold-s.Stock)
	r.Unrecorded = max(0, r.Sold-r.Balance.Sold)
	r.LostSales = min(r.SoldOut+r.Busy, r.Balance.Available)
	return r, nil
}

// open lets the buyers in.
func (s Sale) open(ctx context.Context, store Store, r *Result, done func()) {
	var mu sync.Mutex
	var buyers sync.WaitGroup
	gate := make(chan struct{})
	var start time.Time
	for _, buyer := range rand.New(rand.NewPCG(s.Seed, 0)).Perm(s.Buyers) {
		buyers.Go(func() {
			req := inventory.Request{
				Key: fmt.Sprintf("%s/%d", s.Name, buyer), SKU: s.Name, Buyer: fmt.Sprintf("buyer-%d", buyer), Qty: 1,
			}
			<-gate
			began := time.Now()
			_, err := store.Reserve(ctx, req)
			end := time.Now()
			done()
			mu.Lock()
			defer mu.Unlock()
			r.count(err, end.Sub(start))
			_ = r.Latency.RecordValue(max(1, end.Sub(began).Microseconds()))
		})
	}
	runtime.GC() // none of this sale's time goes into the last one's garbage
	start = time.Now()
	close(gate)
	buyers.Wait()
}

func (r *Result) count(err error, at time.Duration) {
	switch {
	case err == nil:
		r.Sold++
		r.Took = max(r.Took, at)
	case errors.Is(err, inventory.ErrSoldOut):
		r.SoldOut++
	case sqlerr.IsContended(err):
		r.Busy++
	default:
		r.Failed++
		if r.Failure == nil {
			r.Failure = err
		}
	}
}

// Check says what is wrong with the result of a sale, or nil: every unit is accounted for, none was
// sold twice, and no buyer got "sold out" while one was left. A Shop that promises to sell all must
// not have refused a buyer as busy either.
func (r Result) Check(sellsAll bool) error {
	switch {
	case r.Oversold > 0:
		return fmt.Errorf("%d units were sold that there never were", r.Oversold)
	case r.Unrecorded > 0:
		return fmt.Errorf("%d sales were confirmed to buyers and are not in the books", r.Unrecorded)
	case r.SoldOut > 0 && r.Balance.Available > 0:
		return fmt.Errorf("%d units were left while %d buyers were refused as sold out", r.Balance.Available, r.SoldOut)
	case r.Busy > 0 && sellsAll:
		return fmt.Errorf("%d buyers were refused as busy, and %d units were left", r.Busy, r.Balance.Available)
	case r.Balance.Drift() != 0:
		return fmt.Errorf("the books are off by %d units", r.Balance.Drift())
	case r.Failed > 0:
		return fmt.Errorf("%d buyers got no answer, the first: %w", r.Failed, r.Failure)
	}
	return nil
}
