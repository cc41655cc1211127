package inventory

import (
	"context"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// casAttempts is how often an order is tried under CAS.
const casAttempts = 5

// repeated tries again what somebody else was faster at, each time in a new transaction, with
// pauses as between retries.
func repeated(sell engine.Sell) engine.Sell {
	return func(ctx context.Context, row engine.Row) (engine.Verdict, error) {
		for n := 1; ; n++ {
			verdict, err := sell(ctx, row)
			if err != nil || verdict != engine.Taken || n == casAttempts || !pause(ctx, n-1) {
				return verdict, err
			}
		}
	}
}
