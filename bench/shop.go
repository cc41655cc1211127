package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"

	"github.com/dblock-go/dblock/inventory"
)

// shops are sales with a limit and bots, and sales by many processes.
func shops() []Scenario {
	return []Scenario{
		shopScenario("seckill/limit1", "merge, one unit a buyer; bots, replays, and buyers that come again", 1, inventory.Options{}, limitedOrders),
		shopScenario("seckill/eight", "merge, eight Stores as of eight processes", 8, inventory.Options{}, plainOrders),
		shopScenario("seckill/eightallotted", "the same, each with allotments of 10,000 units", 8, inventory.Options{Allotment: 10_000}, plainOrders),
	}
}

// orders makes the operation of one client, which orders from store s.
type orders func(r *shopRound, s *store, client int) Op

// shopScenario sells one hot SKU from several Stores, which share nothing but the database.
func shopScenario(name, about string, stores int, o inventory.Options, orders orders) Scenario {
	return Scenario{
		Name: name, About: about, Conns: mergedConns,
		Open: func(ctx context.Context, env *Env) (Workload, error) {
			w := &shopWorkload{env: env, orders: orders}
			for range stores {
				s, err := newStore(ctx, env, o)
				if err != nil {
					return nil, errors.Join(err, w.Close())
				}
				w.stores = append(w.stores, s)
			}
			return w, nil
		},
	}
}

type shopWorkload struct {
	env    *Env
	stores []*store
	orders orders
}

// shopRound is one sale: an SKU of its own, and what its orders are numbered by.
type shopRound struct {
	sku    string
	seed   uint64
	keys   atomic.Int64
	buyers atomic.Int64
}

func (w *shopWorkload) Close() error {
	var all error
	for _, s := range w.stores {
		all = errors.Join(all, s.Close())
	}
	return all
}

func (w *shopWorkload) Round(ctx context.Context, n int) (Round, error) {
	if err := checkpoint(ctx, w.env); err != nil {
		return Round{}, err
	}
	r := &shopRound{sku: "shop-" + strconv.Itoa(n), seed: w.env.Seed}
	if err := w.stores[0].Stock(ctx, r.sku, endless); err != nil {
		return Round{}, err
	}
	return Round{
		Client: func(id int) (Op, error) { return w.orders(r, w.stores[id%len(w.stores)], id), nil },
		Check: func(ctx context.Context, ok int64) error {
			sold, err := w.stores[0].Sold(ctx, r.sku)
			if err == nil && sold != ok {
				err = fmt.Errorf("the clients were told of %d units sold, the books hold %d", ok, sold)
			}
			return err
		},
	}, nil
}

// key numbers the orders as they come. All keys have one length, and so sort as they grow.
func (r *shopRound) key() string {
	key := append(make([]byte, 0, 64), r.sku...)
	return string(strconv.AppendInt(append(key, '/'), 1e9+r.keys.Add(1), 10))
}

func plainOrders(r *shopRound, s *store, _ int) Op {
	return func(ctx context.Context) (int, error) { return 1, s.Sell(ctx, r.key(), r.sku, "buyer") }
}

// limitedOrders come with a limit of one unit a buyer. Of a hundred orders twenty come from ten bots, five are sent again,
// and five come from buyers that have a unit.
func limitedOrders(r *shopRound, s *store, client int) Op {
	b := &buyer{shopRound: r, s: s, dice: rand.New(rand.NewPCG(r.seed, uint64(client)))}
	return b.order
}

// buyer is one client of a limited sale, which is a new buyer once it has a unit.
type buyer struct {
	*shopRound
	s    *store
	dice *rand.Rand

	name string
	has  bool
	last inventory.Request // sold
}

func (b *buyer) order(ctx context.Context) (int, error) {
	req := inventory.Request{SKU: b.sku, Qty: 1, Limit: 1}
	switch n := b.dice.IntN(100); {
	case n < 20:
		req.Key, req.Buyer = b.key(), "bot-"+strconv.Itoa(b.dice.IntN(10))
	case n < 25 && b.last.Key != "":
		req = b.last
	case n < 30 && b.has:
		req.Key, req.Buyer = b.key(), b.name
	default:
		if b.name == "" || b.has {
			b.name, b.has = "buyer-"+strconv.FormatInt(b.buyers.Add(1), 10), false
		}
		req.Key, req.Buyer = b.key(), b.name
	}
	got, err := b.s.Reserve(ctx, req)
	switch {
	case err != nil:
		return 1, err
	case got.Replayed:
		return 0, nil
	}
	b.last = req
	b.has = b.has || req.Buyer == b.name
	return 1, nil
}
