package inventory

import (
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/root"
)

// FuzzOrders: each order is one that every driver can store, or dblock.ErrInvalid.
func FuzzOrders(f *testing.F) {
	for _, s := range []string{"order 1", "", "\x00", "\xff", "Grüße 🔒", string(make([]byte, 256))} {
		f.Add(s, s, s, int64(1), int64(0), int64(0), false)
	}
	f.Add("k", "s", "b", int64(1)<<62, int64(-1)<<62, int64(1), true)
	f.Fuzz(func(t *testing.T, key, sku, buyer string, qty, limit, hold int64, unstocked bool) {
		request := Request{Key: key, SKU: sku, Buyer: buyer, Qty: qty, Limit: limit, Hold: time.Duration(hold), Unstocked: unstocked}
		line := Line{SKU: sku, Qty: qty, Limit: limit, Unstocked: unstocked}
		cart := Cart{Key: key, Buyer: buyer, Hold: time.Duration(hold), Lines: []Line{line, line, {SKU: buyer, Qty: limit}}}
		_, cartErr := cart.order()
		for what, err := range map[string]error{
			"request": request.validate(), "line": line.validate("Line"), "cart": cartErr, "adjustment": Adjustment{ID: key, SKU: sku, Delta: qty}.validate(),
		} {
			if err != nil && !errors.Is(err, dblock.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if request.validate() == nil && (qty < 1 || root.CheckText("key", key, 1, MaxIdentifierBytes) != nil || root.CheckText("sku", sku, 1, MaxIdentifierBytes) != nil) {
			t.Errorf("accepted: %+v", request)
		}
	})
}
