package bench

import (
	"context"
	"math/rand/v2"
	"strconv"

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

// shopScenario sells one hot SKU from several Stores.
func shopScenario(name, about string, stores int, o inventory.Options, orders orders[*store]) Scenario {
	return saleScenario(Scenario{Name: name, About: about, Conns: mergedConns}, stores,
		func(ctx context.Context, env *Env) (*store, error) { return newStore(ctx, env, o) }, orders)
}

// limitedOrders come with a limit of one unit a buyer. Of a hundred orders twenty come from ten
// bots, five are sent again, and five come from buyers that have a unit.
func limitedOrders(r *saleRound, s *store, client int) Op {
	b := &buyer{saleRound: r, s: s, dice: rand.New(rand.NewPCG(r.seed, uint64(client)))}
	return b.order
}

// buyer is one client of a limited sale, which is a new buyer once it has a unit.
type buyer struct {
	*saleRound
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
