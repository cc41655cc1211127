package bench

import (
	"context"
	"fmt"
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
	return Scenario{
		Name: name, About: about, Engines: engines, Conns: conns,
		Open: func(ctx context.Context, env *Env) (Workload, error) {
			seller, err := open(ctx, env)
			if err != nil {
				return nil, err
			}
			return sale{env, seller}, nil
		},
	}
}

// endless is more than any round sells, and less than what overflows.
const endless = 1 << 40

type sale struct {
	env    *Env
	seller Seller
}

func (s sale) Close() error { return s.seller.Close() }

func (s sale) measures() any { return s.seller }

func (s sale) Round(ctx context.Context, n int) (Round, error) {
	if err := checkpoint(ctx, s.env); err != nil {
		return Round{}, err
	}
	sku := "sku-" + strconv.Itoa(n)
	if err := s.seller.Stock(ctx, sku, endless); err != nil {
		return Round{}, err
	}
	var orders atomic.Int64
	orders.Store(1e9) // all numbers of one length sort as they grow
	return Round{
		Client: func(id int) (Op, error) {
			buyer := "buyer-" + strconv.Itoa(id)
			key := []byte(sku + "/")
			return func(ctx context.Context) (int, error) {
				return 1, s.seller.Sell(ctx, string(strconv.AppendInt(key, orders.Add(1), 10)), sku, buyer)
			}, nil
		},
		Check: func(ctx context.Context, ok int64) error {
			sold, err := s.seller.Sold(ctx, sku)
			if err == nil && sold != ok {
				err = fmt.Errorf("the clients were told of %d units sold, the books hold %d", ok, sold)
			}
			return err
		},
	}, nil
}
