package bench

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/devdb"
)

// Seller sells stock, in whatever way is to be measured.
type Seller interface {
	// Stock makes a new SKU with so many units.
	Stock(ctx context.Context, sku string, units int64) error

	// Sell sells one unit under a key that is new, and records the order: nil is a committed sale.
	Sell(ctx context.Context, key, sku, buyer string) error

	// Sold counts the units in the orders that are recorded for the SKU.
	Sold(ctx context.Context, sku string) (int64, error)

	Close() error
}

// SaleScenario measures how many units a second are really sold when every client wants the same
// SKU, which never sells out: each sale is an order row and a unit off one counter. The orders are
// numbered as they come, as a sequence, a ULID or a UUIDv7 would. At the end of a round those that
// are recorded are counted.
func SaleScenario(
	name, about string, engines []devdb.Kind, conns []int, open func(context.Context, *Env) (Seller, error),
) Scenario {
	return saleScenario(Scenario{Name: name, About: about, Engines: engines, Conns: conns}, 1, open, plainOrders)
}

// saleScenario sells from several Sellers, which share nothing but the database.
func saleScenario[S Seller](s Scenario, sellers int, open func(context.Context, *Env) (S, error), orders orders[S]) Scenario {
	s.Open = func(ctx context.Context, env *Env) (Workload, error) {
		w := &sale[S]{env: env, orders: orders}
		for range sellers {
			seller, err := open(ctx, env)
			if err != nil {
				return nil, errors.Join(err, w.Close())
			}
			w.sellers = append(w.sellers, seller)
		}
		return w, nil
	}
	return s
}

// orders makes the operation of one client, which orders from a Seller.
type orders[S Seller] func(r *saleRound, seller S, client int) Op

// endless is more than any round sells, and less than what overflows.
const endless = 1 << 40

type sale[S Seller] struct {
	env     *Env
	sellers []S
	orders  orders[S]
}

// saleRound is one sale: an SKU of its own, and what its orders are numbered by.
type saleRound struct {
	sku          string
	seed         uint64
	keys, buyers atomic.Int64
}

func (s *sale[S]) Close() error {
	var all error
	for _, seller := range s.sellers {
		all = errors.Join(all, seller.Close())
	}
	return all
}

func (s *sale[S]) measures() any { return s.sellers[0] }

func (s *sale[S]) Round(ctx context.Context, n int) (Round, error) {
	if err := checkpoint(ctx, s.env); err != nil {
		return Round{}, err
	}
	r := &saleRound{sku: "sku-" + strconv.Itoa(n), seed: s.env.Seed}
	if err := s.sellers[0].Stock(ctx, r.sku, endless); err != nil {
		return Round{}, err
	}
	return Round{
		Client: func(id int) (Op, error) { return s.orders(r, s.sellers[id%len(s.sellers)], id), nil },
		Check:  matches("units sold", "the books hold", 0, func(ctx context.Context) (int64, error) { return s.sellers[0].Sold(ctx, r.sku) }),
	}, nil
}

// key numbers the orders as they come. All keys have one length, and so sort as they grow.
func (r *saleRound) key() string {
	key := append(make([]byte, 0, 64), r.sku...)
	return string(strconv.AppendInt(append(key, '/'), 1e9+r.keys.Add(1), 10))
}

func plainOrders[S Seller](r *saleRound, seller S, client int) Op {
	buyer := "buyer-" + strconv.Itoa(client)
	return func(ctx context.Context) (int, error) { return 1, seller.Sell(ctx, r.key(), r.sku, buyer) }
}
