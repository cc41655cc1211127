package inventory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

type drift struct {
	statement string
	want      inventory.Repair
}

// drifts make the books of "sale" wrong: its stock is 50, its orders come to 10. Why is a part.
var drifts = map[string]drift{
	"stock too low": {"UPDATE dblock_stock SET available = available - 7 WHERE sku = 'sale' AND bucket = 0",
		inventory.Repair{Moved: 7, Why: "7 units left the stock"}},
	"stock too high": {"UPDATE dblock_stock SET available = available + 7 WHERE sku = 'sale' AND bucket = 0",
		inventory.Repair{Moved: -7, Why: "7 units more"}},
	"more in two rows": {"INSERT INTO dblock_stock (sku, bucket, available) VALUES ('sale', 5, 60)",
		inventory.Repair{Moved: -60, Why: "60 units more"}},
	"oversold": {insertOrder + "('forged', 'sale', '', 95, 2)",
		inventory.Repair{Moved: -40, Oversold: 55, Why: "95 units more"}},
	"a lost order": {"UPDATE dblock_reservation SET state = 3 WHERE reservation_key = 'plain'",
		inventory.Repair{Moved: 4, Why: "4 units left"}},
	"a delivery": {"INSERT INTO dblock_adjustment (adjustment_id, sku, delta) VALUES ('forged', 'sale', 5)",
		inventory.Repair{Moved: 5, Why: "5 units left"}},
	"a quota too high": {"UPDATE dblock_quota SET used = 3 WHERE buyer = 'ann'", inventory.Repair{Quotas: 1}},
	"a quota too low":  {"UPDATE dblock_quota SET used = 0 WHERE buyer = 'ann'", inventory.Repair{Quotas: 1}},
	"a quota missing":  {"DELETE FROM dblock_quota WHERE buyer = 'ann'", inventory.Repair{Quotas: 1}},
	"two quotas":       {"UPDATE dblock_quota SET used = 3 - used", inventory.Repair{Quotas: 2}},
	"a quota of none":  {"INSERT INTO dblock_quota VALUES ('sale', 'zoe', 2, 2)", inventory.Repair{Quotas: 1}},
}

// RepairsWhatIsOff has two processes repair wrong books at once: it is done once.
func (mergeTests) RepairsWhatIsOff(t *testing.T, s *env) {
	suite.Each(t, drifts, func(t *testing.T, d drift) {
		s := s.another(t)
		s.stock(t, "sale", 50)
		s.stock(t, "other", 5)
		for _, buyer := range []string{"ann", "bob"} {
			r := perBuyer("of "+buyer, "sale", buyer, 3)
			r.Qty = 2
			s.sells(t, r)
		}
		s.sells(t, order("plain", "sale", 4))
		s.sells(t, held("held", "sale"))
		s.sells(t, held("held, too", "sale"))
		assert.Empty(t, suite.Must(s.Repair(t.Context()))(t), "nothing is wrong yet")
		s.Exec(t, d.statement)
		sum, n := inventory.Repair{}, 0
		for _, r := range s.repairsTwice(t) {
			assert.Equal(t, "sale", r.Before.SKU)
			assert.True(t, r.Why == "" || r.Before.Drift() != 0, "%+v", r)
			sum.Moved, sum.Oversold = sum.Moved+r.Moved, max(sum.Oversold, r.Oversold)
			sum.Quotas, sum.Why, n = sum.Quotas+r.Quotas, sum.Why+r.Why, n+1
		}
		assert.Contains(t, []int{1, 2}, n, "one can repair the stock, and the other the quotas")
		assert.Contains(t, sum.Why, d.want.Why)
		sum.Why = d.want.Why
		assert.Equal(t, d.want, sum)
		if d.want.Oversold > 0 {
			b := s.balance(t, "sale")
			assert.Zero(t, b.Available)
			assert.Equal(t, -d.want.Oversold, b.Drift())
			return
		}
		assert.Empty(t, suite.Must(s.Repair(t.Context(), "sale", "other"))(t), "repaired twice")
		s.sound(t)
	})
}

// RepairsLimitsWithoutStock counts again what buyers have used of their limits on an SKU that was
// only sold without stock.
func (mergeTests) RepairsLimitsWithoutStock(t *testing.T, s *env) {
	r := perBuyer("coupon of ann", "coupon", "ann", 1)
	r.Unstocked = true
	s.sells(t, r)
	for _, statement := range []string{"UPDATE dblock_quota SET used = 0", "DELETE FROM dblock_quota"} {
		s.Exec(t, statement)
		repairs := suite.Must(s.Repair(t.Context()))(t)
		assert.Equal(t, []inventory.Repair{{Before: inventory.Balance{SKU: "coupon"}, Quotas: 1}}, repairs, statement)
		r.Key += ", again"
		assert.ErrorIs(t, suite.Second(s.Reserve(t.Context(), r)), inventory.ErrLimitExceeded, statement)
	}
	s.Exec(t, "UPDATE dblock_quota SET used = 0")
	assert.Empty(t, suite.Must(s.Repair(t.Context(), "other"))(t))
	assert.Len(t, suite.Must(s.Repair(t.Context(), "coupon", "other"))(t), 1)
	assert.Empty(t, suite.Must(s.Repair(t.Context()))(t))
}

func (s *env) repairsTwice(t *testing.T) []inventory.Repair {
	t.Helper()
	other := s.open(t, s.o)
	first := suite.Begin(func() ([]inventory.Repair, error) { return s.Repair(t.Context()) })
	second := suite.Must(other.Repair(t.Context()))(t)
	return append(suite.Must(first())(t), second...)
}

// RepairsInACrowd repairs the books of an SKU beside a crowd of orders, with limits and allotments.
// What was right is not repaired.
func (mergeTests) RepairsInACrowd(t *testing.T, s *env) {
	const orders, rounds = 400, 10
	s.stock(t, "sale", 10_000)
	stores := []*inventory.Store{s.Store, s.openClosed(t, inventory.Options{Allotment: 50, Timeout: s.o.Timeout})}
	sold := suite.Begin(func() (any, error) {
		suite.Crowd(len(stores)*orders, func(i int) {
			r := order(fmt.Sprint(i), "sale", 1)
			if i%4 == 0 {
				r.Buyer, r.Limit = fmt.Sprintf("buyer-%d", i%40), orders
			}
			sellsIn(t, stores[i/orders], r)
		})
		return nil, nil
	})
	want, got, quotas := int64(0), int64(0), 0
	for i := range rounds {
		delta := []int64{-9, 13, 4}[i%3]
		s.execf(t, "UPDATE dblock_stock SET available = available + (%d) WHERE sku = 'sale' AND bucket = 0", delta)
		want -= delta
		for _, r := range suite.Must(s.Repair(t.Context(), "sale"))(t) {
			got, quotas = got+r.Moved, quotas+r.Quotas
		}
	}
	suite.Must(sold())(t)
	assert.Equal(t, want, got)
	assert.Zero(t, quotas)
	assert.EqualValues(t, len(stores)*orders, s.balance(t, "sale").Sold)
	assert.Empty(t, suite.Must(s.Repair(t.Context()))(t), "wrong in the end")
	s.sound(t)
}
