package inventory

import (
	"context"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// forUpdate sells one order as a batch of one is sold: the row is locked while the client decides.
func (s *Store) forUpdate(ctx context.Context, row engine.Row) (engine.Verdict, error) {
	r := Request{Key: row.Key, SKU: row.SKU, Buyer: row.Buyer, Qty: row.Qty, Hold: row.Hold}
	answers, err := s.transact(ctx, []order{{Request: r}}, attempt{assumeNew: true})
	if err != nil || answers[0].Alone || answers[0].Value.passed {
		return engine.TooFew, err
	}
	return engine.Sold, nil
}
