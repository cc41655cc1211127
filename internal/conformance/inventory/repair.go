package inventory

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// drifts make the books of "sale" wrong: its stock is 50, its orders come to 10. Why is a part.
var drifts = map[string]struct {
	statement string
	want      inventory.Repair
}{
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

// repairsWhatIsOff has two processes repair wrong books at once: it is done once.
func repairsWhatIsOff(t *testing.T, s *env) {
	for name, d := range drifts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
			s.exec(t, d.statement)
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
}

func (s *env) repairsTwice(t *testing.T) []inventory.Repair {
	t.Helper()
	other := s.open(t, s.o)
	first := suite.Begin(func() ([]inventory.Repair, error) { return s.Repair(t.Context()) })
	second := suite.Must(other.Repair(t.Context()))(t)
	return append(suite.Must(first())(t), second...)
}

// repairsInACrowd repairs the books of an SKU beside a crowd of orders, with limits and allotments.
// What was right is not repaired.
func repairsInACrowd(t *testing.T, s *env) {
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

// rows are the units in each row of an SKU that is no allotment.
func (s *env) rows(t *testing.T, sku string) []string {
	t.Helper()
	return s.Texts(t, "SELECT available FROM dblock_stock WHERE bucket < 1048576 AND sku = '"+sku+"' ORDER BY bucket")
}

// rebalancesInACrowd spreads stock over rows and gathers it again beside a crowd of orders. The
// books are right at each commit, and all is sold.
func rebalancesInACrowd(t *testing.T, s *env) {

	assert.NoError(t, restock(t, s.open(t, patient(inventory.Merge)), "few", "few", 20))
	for _, c := range []struct {
		buckets int
		want    []string
	}{
		{2, []string{"10", "10"}}, {3, []string{"20", "0"}}, {1, []string{"20", "0"}},
	} {
		assert.NoError(t, s.Rebalance(t.Context(), "few", c.buckets))
		assert.Equal(t, c.want, s.rows(t, "few"), "in %d rows", c.buckets)
	}
	for _, bad := range []int{0, -1, 1025} {
		assert.ErrorIs(t, s.Rebalance(t.Context(), "few", bad), inventory.ErrInvalid, bad)
	}
	assert.ErrorIs(t, s.Rebalance(t.Context(), "nonsense", 2), inventory.ErrUnknownSKU)
	s.keepsBooks(t)
	const units = 400
	s.stock(t, "sale", units)
	var over atomic.Bool
	sold := suite.Begin(func() ([]told, error) {
		defer over.Store(true)
		return crowd(t.Context(), s.Store, ordersFor(units, "sale")), nil
	})
	for i := 0; !over.Load(); i++ {
		err := s.Rebalance(t.Context(), "sale", []int{16, 1, 4, 32}[i%4])
		assert.True(t, err == nil || errors.Is(err, dblock.ErrBusy), err)
	}
	assert.Equal(t, map[string]int{"sold": units}, outcomes(suite.Must(sold())(t)))
	s.wantsBooks(t, "sale", 0, 0, units)
	s.balanced(t)
}

// levelsWhatRunsDry sells from rows of which none has enough for the order. It is sold, and the
// rows are levelled, or put together if they would have too few.
func levelsWhatRunsDry(t *testing.T, s *env) {
	s.stock(t, "many", 16*30)
	s.stock(t, "few", 16*10)
	for sku, qty := range map[string]int64{"many": 100, "few": 40} {
		_, err := reserve(t.Context(), s.Store, order(sku, sku, qty))
		assert.NoError(t, err, sku)
		suite.Until(t, "the rows of "+sku+" are level", func() bool {
			rows := s.rows(t, sku)
			slices.Sort(rows)
			if sku == "few" {
				return s.rows(t, sku)[0] == "120"
			}
			return rows[0] == "23" && rows[len(rows)-1] == "24"
		})
	}
	s.sound(t)
}
