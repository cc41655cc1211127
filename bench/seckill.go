package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
)

// The numbers of connections to try. Merged orders share a few, and more change
// nothing.
var (
	mergedConns = []int{4}
	directConns = []int{2, 4, 16, 64}
)

// seckill is the hot SKU of a flash sale, sold by package inventory and in plain SQL.
func seckill() []Scenario {
	all := []Scenario{
		seckillScenario("merge", "orders that queue share the next statement", mergedConns, inventory.Options{}),
		seckillScenario("direct", "a conditional UPDATE an order", directConns, inventory.Options{Direct: true}),
	}
	for _, p := range plainSales {
		s := SaleScenario("seckill/"+p.Name, "one hot SKU, in plain SQL: "+p.About, nil, directConns,
			func(ctx context.Context, env *Env) (Seller, error) { return OpenPlainSale(ctx, env, p) })
		if p.MySQL == nil {
			s.Engines = []devdb.Kind{devdb.Postgres}
		}
		all = append(all, s)
	}
	return append(all, shops()...)
}

func seckillScenario(name, about string, conns []int, o inventory.Options) Scenario {
	return SaleScenario("seckill/"+name, "one hot SKU: "+about, nil, conns,
		func(ctx context.Context, env *Env) (Seller, error) { return newStore(ctx, env, o) })
}

// store is a Seller on an inventory.Store.
type store struct {
	*inventory.Store
	shop interface { // the Store, or a PlainShop
		Restock(context.Context, inventory.Adjustment) (replayed bool, err error)
		Reserve(context.Context, inventory.Request) (inventory.Reservation, error)
	}
	db *Database
}

func newStore(ctx context.Context, env *Env, o inventory.Options) (*store, error) {
	db, err := env.database(ctx, env.Conns)
	if err != nil {
		return nil, err
	}
	return storeOn(ctx, db, env, o)
}

func storeOn(ctx context.Context, db *Database, env *Env, o inventory.Options) (*store, error) {
	o.MaxInFlight = env.Conns
	s, err := on(db,
		func(pool *pgxpool.Pool) (*inventory.Store, error) { return pginventory.New(ctx, pool, o) },
		func(db *sql.DB) (*inventory.Store, error) { return mysqlinventory.New(ctx, db, o) })
	return &store{s, s, db}, err
}

// OpenPlainSale opens a Seller that sells in plain SQL.
func OpenPlainSale(ctx context.Context, env *Env, p PlainSale) (Seller, error) {
	db, err := env.Database(ctx)
	if err != nil {
		return nil, err
	}
	s, err := storeOn(ctx, db, env, inventory.Options{})
	if err != nil {
		return nil, err
	}
	s.shop = p.Shop(s.Store, db)
	return s, nil
}

func (s *store) Stock(ctx context.Context, sku string, units int64) error {
	_, err := s.shop.Restock(ctx, inventory.Adjustment{ID: "stock of " + sku, SKU: sku, Delta: units})
	return err
}

func (s *store) Sell(ctx context.Context, key, sku, buyer string) error {
	_, err := s.shop.Reserve(ctx, inventory.Request{Key: key, SKU: sku, Buyer: buyer, Qty: 1})
	return err
}

func (s *store) Sold(ctx context.Context, sku string) (int64, error) {
	books, err := s.Audit(ctx, sku)
	if err != nil {
		return 0, err
	}
	var sold int64
	for _, b := range books {
		if sold += b.Sold; b.Drift() != 0 {
			return 0, fmt.Errorf("the books are off by %d: %+v", b.Drift(), b)
		}
	}
	return sold, nil
}

func (s *store) Close() error {
	return errors.Join(s.Store.Close(context.Background()), s.db.Close())
}
