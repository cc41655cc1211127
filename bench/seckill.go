package bench

import (
	"context"
	"errors"
	"slices"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
)

// seckill is the hot SKU of a flash sale, with every strategy of package inventory.
func seckill() []Scenario {
	var all []Scenario
	for _, strategy := range inventory.Strategies() {
		all = append(all, SaleScenario("seckill/"+strategy.String(), "one hot SKU: "+how[strategy],
			enginesOf(strategy), connsOf(strategy),
			func(ctx context.Context, env *Env) (Seller, error) {
				return newStore(ctx, env, inventory.Options{Strategy: strategy})
			}))
	}
	return slices.Concat(all, shops(), refusals())
}

// how a strategy sells, in a line.
var how = map[inventory.Strategy]string{
	inventory.Merge:      "orders that queue share the next statement",
	inventory.Direct:     "a conditional UPDATE an order",
	inventory.ForUpdate:  "SELECT FOR UPDATE, the order, UPDATE",
	inventory.NoWait:     "FOR UPDATE NOWAIT, or the buyer is refused",
	inventory.SkipLocked: "FOR UPDATE SKIP LOCKED over 16 buckets, or the buyer is refused",
	inventory.CAS:        "UPDATE if nobody was faster, 5 attempts, or the buyer is refused",
	inventory.Advisory:   "UPDATE by whoever has pg_try_advisory_xact_lock, or the buyer is refused",
}

func enginesOf(s inventory.Strategy) []devdb.Kind {
	if s == inventory.Advisory {
		return []devdb.Kind{devdb.Postgres}
	}
	return nil
}

// connsOf lists the numbers of connections to try. Merged orders share a few, and more change
// nothing.
func connsOf(s inventory.Strategy) []int {
	if s == inventory.Merge {
		return []int{4}
	}
	return []int{2, 4, 16, 64}
}

// store is a Seller on an inventory.Store.
type store struct {
	*inventory.Store
	closePool func() error
}

func newStore(ctx context.Context, env *Env, o inventory.Options) (*store, error) {
	o.MaxInFlight = env.Conns
	if env.Kind == devdb.Postgres {
		pool, err := env.Postgres(ctx)
		if err != nil {
			return nil, err
		}
		s, err := pginventory.New(ctx, pool, o)
		return &store{s, func() error { pool.Close(); return nil }}, err
	}
	db, err := env.MySQL(ctx)
	if err != nil {
		return nil, err
	}
	s, err := mysqlinventory.New(ctx, db, o)
	return &store{s, db.Close}, err
}

func (s *store) Stock(ctx context.Context, sku string, units int64) error {
	_, err := s.Restock(ctx, inventory.Adjustment{ID: "stock of " + sku, SKU: sku, Delta: units})
	return err
}

func (s *store) Sell(ctx context.Context, key, sku, buyer string) error {
	_, err := s.Reserve(ctx, inventory.Request{Key: key, SKU: sku, Buyer: buyer, Qty: 1})
	return err
}

func (s *store) Sold(ctx context.Context, sku string) (int64, error) {
	books, err := s.Audit(ctx, sku)
	if err != nil {
		return 0, err
	}
	var sold int64
	for _, b := range books {
		sold += b.Sold
	}
	return sold, nil
}

func (s *store) Close() error {
	return errors.Join(s.Store.Close(context.Background()), s.closePool())
}
