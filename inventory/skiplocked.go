package inventory

import (
	"context"
	"math/rand/v2"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

type sellFrom = func(ctx context.Context, row engine.Row, first int32) (engine.Verdict, error)

// fromAnyBucket draws the bucket that an order begins with.
func fromAnyBucket(sell sellFrom, buckets int) engine.Sell {
	return func(ctx context.Context, row engine.Row) (engine.Verdict, error) {
		return sell(ctx, row, rand.Int32N(int32(buckets)))
	}
}
