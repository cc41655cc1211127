package inventory

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// rows are how many units are in each row of an SKU that nobody was allotted.
func (s *env) rows(t *testing.T, sku string) (units []int64) {
	t.Helper()
	n := s.count(t, fmt.Sprintf("SELECT count(*) FROM dblock_stock WHERE sku = '%s' AND bucket < 1048576", sku))
	for i := range n {
		units = append(units, s.count(t, fmt.Sprintf("SELECT available FROM dblock_stock WHERE sku = '%s' AND bucket = %d", sku, i)))
	}
	return units
}

// rebalancesInACrowd spreads stock over rows and gathers it again while a crowd sells from them: the books are right at every
// commit, and all is sold.
func rebalancesInACrowd(t *testing.T, s *env) {
	plain := s.open(t, patient(inventory.Merge))
	if _, err := plain.Restock(t.Context(), inventory.Adjustment{ID: "few", SKU: "few", Delta: 20}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		buckets int
		want    []int64
	}{
		{2, []int64{10, 10}}, {3, []int64{20, 0}}, {1, []int64{20, 0}},
	} {
		if err := s.Rebalance(t.Context(), "few", c.buckets); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(c.want, s.rows(t, "few")); diff != "" {
			t.Errorf("20 units in %d rows (-want +got):\n%s", c.buckets, diff)
		}
	}
	for _, bad := range []int{0, -1, 1025} {
		if err := s.Rebalance(t.Context(), "few", bad); !errors.Is(err, inventory.ErrInvalid) {
			t.Errorf("%d buckets: %v", bad, err)
		}
	}
	if err := s.Rebalance(t.Context(), "nonsense", 2); !errors.Is(err, inventory.ErrUnknownSKU) {
		t.Errorf("an SKU that is not known: %v", err)
	}
	s.keepsBooks(t)
	const units = 400
	s.stock(t, "sale", units)
	var crowd sync.WaitGroup
	var left atomic.Int64
	left.Store(units)
	for _, r := range ordersFor(units, "sale") {
		crowd.Go(func() {
			defer left.Add(-1)
			if _, err := reserve(t.Context(), s.Store, r); err != nil {
				t.Errorf("%s: %v", r.Key, err)
			}
		})
	}
	for i := 0; left.Load() > 0; i++ {
		if err := s.Rebalance(t.Context(), "sale", []int{16, 1, 4, 32}[i%4]); err != nil && !errors.Is(err, dblock.ErrBusy) {
			t.Error(err)
		}
	}
	crowd.Wait()
	s.wantsBooks(t, "sale", 0, 0, units)
	s.balanced(t)
}

// levelsWhatRunsDry sells from rows of which none has enough for an order: it is sold, and they are levelled behind it, or put
// together where they would have too few.
func levelsWhatRunsDry(t *testing.T, s *env) {
	s.stock(t, "many", 16*30)
	s.stock(t, "few", 16*10)
	for sku, qty := range map[string]int64{"many": 100, "few": 40} {
		before := s.rows(t, sku)
		if _, err := reserve(t.Context(), s.Store, order(sku, sku, qty)); err != nil {
			t.Errorf("%d of %v: %v", qty, before, err)
		}
		suite.Until(t, "the rows of "+sku+" are level", func() bool {
			rows := s.rows(t, sku)
			if sku == "few" {
				return rows[0] == 120
			}
			return slices.Min(rows) == 23 && slices.Max(rows) == 24
		})
	}
	s.sound(t)
}
