package inventory

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dblock-go/dblock/inventory"
)

// drifts are statements that make the books of "sale" wrong, and what Repair does about it. Its stock is 50 and its orders come to 10.
var drifts = map[string]struct {
	statement string
	moved     int64
	oversold  int64
	quotas    int
	why       string
}{
	"stock too low":    {"UPDATE dblock_stock SET available = available - 7 WHERE sku = 'sale' AND bucket = 0", 7, 0, 0, "7 units left the stock"},
	"stock too high":   {"UPDATE dblock_stock SET available = available + 7 WHERE sku = 'sale' AND bucket = 0", -7, 0, 0, "7 units more"},
	"more in two rows": {"INSERT INTO dblock_stock (sku, bucket, available) VALUES ('sale', 5, 60)", -60, 0, 0, "60 units more"},
	"oversold":         {"INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state) VALUES ('forged', 'sale', '', 95, 2)", -40, 55, 0, "95 units more"},
	"a lost order":     {"UPDATE dblock_reservation SET state = 3 WHERE reservation_key = 'plain'", 4, 0, 0, "4 units left"},
	"a delivery":       {"INSERT INTO dblock_adjustment (adjustment_id, sku, delta) VALUES ('forged', 'sale', 5)", 5, 0, 0, "5 units left"},
	"a quota too high": {"UPDATE dblock_quota SET used = 3 WHERE buyer = 'ann'", 0, 0, 1, ""},
	"a quota too low":  {"UPDATE dblock_quota SET used = 0 WHERE buyer = 'ann'", 0, 0, 1, ""},
	"a quota missing":  {"DELETE FROM dblock_quota WHERE buyer = 'ann'", 0, 0, 1, ""},
	"two quotas":       {"UPDATE dblock_quota SET used = CASE WHEN buyer = 'ann' THEN 3 ELSE 0 END", 0, 0, 2, ""},
	"a quota of none":  {"INSERT INTO dblock_quota (sku, buyer, used, most) VALUES ('sale', 'zoe', 2, 2)", 0, 0, 1, ""},
}

// repairsWhatIsOff makes the books of an env wrong in every way, and has two processes repair them at once: it is done once.
func repairsWhatIsOff(t *testing.T, s *env) {
	for name, d := range drifts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s.e.env(t, s.o)
			s.stock(t, "sale", 50)
			s.stock(t, "other", 5)
			for _, buyer := range []string{"ann", "bob"} {
				r := order("of "+buyer, "sale", 2)
				r.Buyer, r.Limit = buyer, 3
				s.sells(t, r)
			}
			s.sells(t, order("plain", "sale", 4))
			s.sells(t, held("held", "sale"))
			s.sells(t, held("held, too", "sale"))
			if r, err := s.Repair(t.Context()); err != nil || len(r) != 0 {
				t.Errorf("nothing is wrong, and Repair says %+v, %v", r, err)
			}
			s.exec(t, d.statement)
			got := s.repairsTwice(t)
			if len(got) == 0 || len(got) > 2 { // one of them can do the stock and the other one the quotas
				t.Fatalf("it was repaired %d times: %+v", len(got), got)
			}
			sum := inventory.Repair{}
			for _, r := range got {
				if r.Before.SKU != "sale" || r.Why != "" && r.Before.Drift() == 0 {
					t.Errorf("%+v", r)
				}
				sum.Moved, sum.Oversold, sum.Quotas, sum.Why = sum.Moved+r.Moved, sum.Oversold+r.Oversold, sum.Quotas+r.Quotas, sum.Why+r.Why
			}
			if d.oversold > 0 { // whoever comes second finds that, too
				sum.Oversold /= int64(len(got))
			}
			if sum.Moved != d.moved || sum.Oversold != d.oversold || sum.Quotas != d.quotas || !strings.Contains(sum.Why, d.why) { // of two either may come first
				t.Errorf("%+v, want %+v", sum, d)
			}
			again, err := s.Repair(t.Context(), "sale", "other")
			if d.oversold == 0 {
				if err != nil || len(again) != 0 {
					t.Errorf("the second time it finds %+v, %v", again, err)
				}
				s.sound(t)
			} else if b := s.balance(t, "sale"); b.Available != 0 || b.Drift() != -d.oversold {
				t.Errorf("oversold: %+v", b)
			}
		})
	}
}

// repairsTwice has two processes do so at once.
func (s *env) repairsTwice(t *testing.T) (all []inventory.Repair) {
	t.Helper()
	var mu sync.Mutex
	var both sync.WaitGroup
	for _, store := range []*inventory.Store{s.Store, s.open(t, s.o)} {
		both.Go(func() {
			got, err := store.Repair(context.WithoutCancel(t.Context()))
			mu.Lock()
			defer mu.Unlock()
			if all = append(all, got...); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	return all
}

// repairsInACrowd has drift come into the books of what a crowd sells, with limits and allotments, and repairs it meanwhile: in the
// end nothing is wrong, and nothing was repaired that was right.
func repairsInACrowd(t *testing.T, s *env) {
	const orders, rounds = 400, 10
	s.stock(t, "sale", 10_000)
	stores := []*inventory.Store{s.Store, s.openClosed(t, inventory.Options{Allotment: 50, Timeout: s.o.Timeout})}
	var sellers sync.WaitGroup
	for n, store := range stores {
		for i := range orders {
			sellers.Go(func() {
				r := order(fmt.Sprintf("%d-%d", n, i), "sale", 1)
				if i%4 == 0 {
					r.Buyer, r.Limit = fmt.Sprintf("buyer-%d", i%40), orders
				}
				if _, err := store.Reserve(t.Context(), r); err != nil {
					t.Errorf("%s: %v", r.Key, err)
				}
			})
		}
	}
	want, got := map[string]int64{}, map[string]int64{}
	for i := range rounds {
		delta := []int64{-9, 13, 4}[i%3]
		s.exec(t, fmt.Sprintf("UPDATE dblock_stock SET available = available + (%d) WHERE sku = 'sale' AND bucket = 0", delta))
		want["moved"] -= delta
		repairs, err := s.Repair(t.Context(), "sale")
		if err != nil {
			t.Error(err)
		}
		for _, r := range repairs {
			got["moved"] += r.Moved
			got["quotas"] += int64(r.Quotas)
		}
	}
	sellers.Wait()
	if want["quotas"] = 0; !cmp.Equal(want, got) {
		t.Errorf("repaired %v, want %v", got, want)
	}
	if b := s.balance(t, "sale"); b.Sold != int64(len(stores))*orders {
		t.Errorf("%+v", b)
	}
	if again, err := s.Repair(t.Context()); err != nil || len(again) != 0 {
		t.Errorf("in the end it finds %+v, %v", again, err)
	}
	s.sound(t)
}
