package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/dblock-go/dblock/inventory"
)

// refusals are sales of one hot SKU in which each hundredth order is not sold. seckill/merge and seckill/withinlimit are the same sales
// without such orders.
func refusals() []Scenario {
	return []Scenario{
		shopScenario("seckill/toomuch", "merge; each 100th order asks for more than is left", refused(tooMuch)),
		shopScenario("seckill/replays", "merge; each 100th order was sold by another process", refused(replayed)),
		shopScenario("seckill/withinlimit", "merge, one unit a buyer", refused(withinLimit)),
		shopScenario("seckill/overlimit", "the same; each 100th buyer bought a unit from another process", refused(overLimit)),
	}
}

// refusal says how each hundredth order differs from the others.
type refusal struct {
	limit int64                                               // of all orders
	make  func(r *inventory.Request, early inventory.Request) // makes it of one that fits, and of one that was sold before; nil: all fit
	want  error                                               // its answer; nil: a replay
}

var (
	tooMuch     = refusal{0, func(r *inventory.Request, _ inventory.Request) { r.Qty = inventory.MaxQty }, inventory.ErrSoldOut}
	replayed    = refusal{0, func(r *inventory.Request, early inventory.Request) { *r = early }, nil}
	withinLimit = refusal{limit: 1}
	overLimit   = refusal{1, func(r *inventory.Request, early inventory.Request) { r.Buyer = early.Buyer }, inventory.ErrLimitExceeded}
)

const earlyOrders = 4096 // sold by another process before a round begins

func refused(kind refusal) func(context.Context, *Env) (*shopWorkload, error) {
	return func(ctx context.Context, env *Env) (*shopWorkload, error) {
		w := &shopWorkload{early: earlyOrders}
		for range 2 {
			s, err := newStore(ctx, env, inventory.Options{})
			if err != nil {
				return nil, errors.Join(err, w.Close())
			}
			w.stores = append(w.stores, s)
		}
		s, other := w.stores[0], w.stores[1]
		w.round = func(ctx context.Context, n int) (shopper, []string, error) {
			if err := checkpoint(ctx, env); err != nil {
				return nil, nil, err
			}
			sku := "refused-" + strconv.Itoa(n)
			if err := s.Stock(ctx, sku, inventory.MaxQty-1); err != nil {
				return nil, nil, err
			}
			var numbers keys
			fits := func() inventory.Request {
				key := numbers.next(sku)
				return inventory.Request{Key: key, SKU: sku, Buyer: key, Qty: 1, Limit: kind.limit}
			}
			early := make([]inventory.Request, earlyOrders)
			var sales errgroup.Group
			for i := range early {
				early[i] = fits()
				sales.Go(func() error { _, err := other.Reserve(ctx, early[i]); return err })
			}
			var orders atomic.Int64
			return func(int) Op {
				return func(ctx context.Context) (int, error) {
					r, i := fits(), orders.Add(1)
					if i%100 > 0 || kind.make == nil {
						_, err := s.Reserve(ctx, r)
						return 1, err
					}
					kind.make(&r, early[i/100%earlyOrders])
					got, err := s.Reserve(ctx, r)
					if kind.want == nil && got.Replayed || err != nil && errors.Is(err, kind.want) {
						return 0, nil
					}
					return 0, fmt.Errorf("order %d is not refused: %+v, %w", i, got, err)
				}
			}, []string{sku}, sales.Wait()
		}
		return w, nil
	}
}
