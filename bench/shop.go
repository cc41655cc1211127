package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/inventory"
)

// shops are flash sales as shops have them: with limits and bots, with an article that is sold out, with many articles, and with
// many processes.
func shops() []Scenario {
	merged := inventory.Options{}
	return []Scenario{
		shopScenario("seckill/limit1", "merge, one unit a buyer; bots, replays, and buyers who come again", limited(1)),
		shopScenario("seckill/limit3", "merge, three units a buyer; bots, replays, and buyers who come again", limited(3)),
		shopScenario("seckill/soldout", "answers of a Store whose SKU is sold out", soldOut),
		shopScenario("seckill/random", "merge, 100,000 SKUs at random", atRandom(merged)),
		randomOneByOne(),
		shopScenario("seckill/eight", "merge, eight Stores as of eight processes", several(8, merged)),
		shopScenario("seckill/eightallotted", "the same, each with allotments of 10,000 units", several(8, inventory.Options{Allotment: 10_000})),
	}
}

// randomOneByOne is what seckill/random is measured by, at its best number of connections.
func randomOneByOne() Scenario {
	s := shopScenario("seckill/randomdirect", "a conditional UPDATE an order, 100,000 SKUs at random",
		atRandom(inventory.Options{Direct: true}))
	s.Conns = directConns
	return s
}

// shopper is what a caller does again and again.
type shopper func(id int) Op

func shopScenario(name, about string, open func(context.Context, *Env) (*shopWorkload, error)) Scenario {
	return Scenario{
		Name: name, About: about, Conns: mergedConns,
		Open: func(ctx context.Context, env *Env) (Workload, error) { return open(ctx, env) },
	}
}

type shopWorkload struct {
	stores []*store
	early  int64                                                       // units of each round that were sold before it
	round  func(ctx context.Context, n int) (shopper, []string, error) // and the SKUs whose books count; nil: none
}

func (w *shopWorkload) Close() error {
	var all error
	for _, s := range w.stores {
		all = errors.Join(all, s.Close())
	}
	return all
}

func (w *shopWorkload) Round(ctx context.Context, n int) (Round, error) {
	shopper, skus, err := w.round(ctx, n)
	if err != nil {
		return Round{}, err
	}
	return Round{
		Client: func(id int) (Op, error) { return shopper(id), nil },
		Check: func(ctx context.Context, ok int64) error {
			if len(skus) == 0 {
				return nil
			}
			books, err := w.stores[0].Audit(ctx, skus...)
			if err != nil {
				return err
			}
			var sold int64
			for _, b := range books {
				if sold += b.Sold; b.Drift() != 0 {
					return fmt.Errorf("the books are off by %d: %+v", b.Drift(), b)
				}
			}
			if sold -= w.early; sold != ok {
				return fmt.Errorf("the callers were told of %d units sold, the books hold %d", ok, sold)
			}
			return nil
		},
	}, nil
}

// keys numbers orders as they come; all are of one length, and so sort as they grow.
type keys struct{ last atomic.Int64 }

func (k *keys) next(sku string) string {
	key := append(make([]byte, 0, 64), sku...)
	return string(strconv.AppendInt(append(key, '/'), 1e9+k.last.Add(1), 10))
}

// limited is a sale in which of a hundred orders twenty come from ten bots, five are sent again, and five come from buyers who
// have what they may have.
func limited(limit int64) func(context.Context, *Env) (*shopWorkload, error) {
	return func(ctx context.Context, env *Env) (*shopWorkload, error) {
		s, err := newStore(ctx, env, inventory.Options{})
		if err != nil {
			return nil, err
		}
		return &shopWorkload{stores: []*store{s}, round: func(ctx context.Context, n int) (shopper, []string, error) {
			if err := checkpoint(ctx, env); err != nil {
				return nil, nil, err
			}
			sku := "limited-" + strconv.Itoa(n)
			var numbers keys
			var buyers atomic.Int64
			return func(id int) Op {
				b := &buyer{s: s, sku: sku, limit: limit, keys: &numbers, buyers: &buyers, dice: rand.New(rand.NewPCG(env.Seed, uint64(id)))}
				return b.order
			}, []string{sku}, s.Stock(ctx, sku, endless)
		}}, nil
	}
}

// buyer is one caller of a limited sale, who is a new buyer once it has what it may have.
type buyer struct {
	s      *store
	sku    string
	limit  int64
	keys   *keys
	buyers *atomic.Int64
	dice   *rand.Rand

	name string
	has  int64
	last inventory.Request // sold
}

func (b *buyer) order(ctx context.Context) (int, error) {
	r := inventory.Request{SKU: b.sku, Qty: 1, Limit: b.limit}
	switch n := b.dice.IntN(100); {
	case n < 20:
		r.Key, r.Buyer = b.keys.next(b.sku), "bot-"+strconv.Itoa(b.dice.IntN(10))
	case n < 25 && b.last.Key != "":
		r = b.last
	case n < 30 && b.has == b.limit:
		r.Key, r.Buyer = b.keys.next(b.sku), b.name
	default:
		if b.name == "" || b.has == b.limit {
			b.name, b.has = "buyer-"+strconv.FormatInt(b.buyers.Add(1), 10), 0
		}
		r.Key, r.Buyer = b.keys.next(b.sku), b.name
	}
	got, err := b.s.Reserve(ctx, r)
	switch {
	case err != nil:
		return 1, err
	case got.Replayed:
		return 0, nil
	}
	b.last = r
	if r.Buyer == b.name {
		b.has++
	}
	return 1, nil
}

// soldOut counts answers.
func soldOut(ctx context.Context, env *Env) (*shopWorkload, error) {
	s, err := newStore(ctx, env, inventory.Options{Latch: 100 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	return &shopWorkload{stores: []*store{s}, round: func(ctx context.Context, n int) (shopper, []string, error) {
		sku := "soldout-" + strconv.Itoa(n)
		if err := s.Stock(ctx, sku, 1); err != nil {
			return nil, nil, err
		}
		var numbers keys
		if err := s.Sell(ctx, numbers.next(sku), sku, "the first"); err != nil {
			return nil, nil, err
		}
		return func(int) Op {
			return func(ctx context.Context) (int, error) {
				err := s.Sell(ctx, numbers.next(sku), sku, "too late")
				if errors.Is(err, inventory.ErrSoldOut) {
					return 1, nil
				}
				return 0, errors.Join(errors.New("sold what was not there"), err)
			}
		}, nil, nil
	}}, nil
}

// atRandom sells any of many SKUs. There is no checkpoint before a round: the first change of each page after one is written whole.
func atRandom(o inventory.Options) func(context.Context, *Env) (*shopWorkload, error) {
	const skus = 100_000
	return func(ctx context.Context, env *Env) (*shopWorkload, error) {
		s, err := newStore(ctx, env, o)
		if err != nil {
			return nil, err
		}
		if err := s.stockAll(ctx, env, skus); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		return &shopWorkload{stores: []*store{s}, round: func(_ context.Context, n int) (shopper, []string, error) {
			var numbers keys
			round := "random-" + strconv.Itoa(n)
			return func(id int) Op {
				dice := rand.New(rand.NewPCG(env.Seed, uint64(id)))
				return func(ctx context.Context) (int, error) {
					return 1, s.Sell(ctx, numbers.next(round), "sku-"+strconv.Itoa(dice.IntN(skus)), "somebody")
				}
			}, nil, nil
		}}, nil
	}
}

// several are Stores that share nothing but the database.
func several(n int, o inventory.Options) func(context.Context, *Env) (*shopWorkload, error) {
	return func(ctx context.Context, env *Env) (*shopWorkload, error) {
		w := &shopWorkload{}
		for range n {
			s, err := newStore(ctx, env, o)
			if err != nil {
				return nil, errors.Join(err, w.Close())
			}
			w.stores = append(w.stores, s)
		}
		w.round = func(ctx context.Context, n int) (shopper, []string, error) {
			if err := checkpoint(ctx, env); err != nil {
				return nil, nil, err
			}
			sku := "shared-" + strconv.Itoa(n)
			var numbers keys
			return func(id int) Op {
				s := w.stores[id%len(w.stores)]
				return func(ctx context.Context) (int, error) { return 1, s.Sell(ctx, numbers.next(sku), sku, "somebody") }
			}, []string{sku}, w.stores[0].Stock(ctx, sku, endless)
		}
		return w, nil
	}
}
