package inventory

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

func req(key, sku string, qty int64) Request {
	return Request{Key: key, SKU: sku, Buyer: "b", Qty: qty}
}

// orders are Requests as the queue has them.
func orders(reqs ...Request) []order {
	all := make([]order, len(reqs))
	for i, r := range reqs {
		all[i].Request = r
	}
	return all
}

// skipsNone is Books.Skipped of a transaction that has all rows.
func skipsNone(string) bool { return false }

// verdict names the answer to a request.
func verdict(a result) string {
	var out *SoldOutError
	switch {
	case a.Alone:
		return "alone"
	case a.Value.passed:
		return "passed over"
	case errors.As(a.Err, &out):
		return fmt.Sprintf("sold out, %d left", out.Available)
	case errors.Is(a.Err, ErrKeyReused):
		return "key reused"
	case errors.Is(a.Err, ErrCancelled):
		return "cancelled"
	case errors.Is(a.Err, ErrUnknownSKU):
		return "unknown"
	case a.Err != nil:
		return a.Err.Error()
	case a.Value.Replayed:
		return "replayed " + a.Value.State.String()
	default:
		return a.Value.State.String()
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	stock := map[string][]driver.Bucket{"a": {{Left: 5}}, "empty": {{}}, "spread": {{Left: 2}, {Number: 1, Left: 3}, {Number: 2, Left: 1}}}
	stock["partly"] = []driver.Bucket{{Number: 1, Left: 2}} // another process has bucket 0
	skipped := func(sku string) bool { return sku == "locked" || sku == "partly" }
	recorded := map[string][]driver.Row{
		"old":    {{Key: "old", SKU: "a", Buyer: "b", Qty: 2, State: int16(ReservationSold)}},
		"gone":   {{Key: "gone", SKU: "a", Buyer: "b", Qty: 1, State: int16(ReservationRefused)}},
		"cancel": {{Key: "cancel", SKU: "a", Buyer: "b", Qty: 1, State: int16(ReservationCancelled)}},
	}
	for name, c := range map[string]struct {
		reqs   []Request
		mode   mode
		want   []string
		insert int   // rows
		take   int64 // units of a
	}{
		"all fit": {
			reqs: []Request{req("1", "a", 2), req("2", "a", 3)},
			want: []string{"sold", "sold"}, insert: 2, take: 5,
		},
		"what does not fit stops nobody after it": {
			reqs: []Request{req("1", "a", 4), req("2", "a", 2), req("3", "a", 1), req("4", "a", 1)},
			want: []string{"sold", "sold out, 1 left", "sold", "sold out, 0 left"}, insert: 2, take: 5,
		},
		"none left": {
			reqs: []Request{req("1", "empty", 1)},
			want: []string{"sold out, 0 left"},
		},
		"unknown": {
			reqs: []Request{req("1", "x", 1), req("2", "a", 1)},
			want: []string{"unknown", "sold"}, insert: 1, take: 1,
		},
		"skipped rows are asked again": {
			reqs: []Request{req("1", "locked", 1), req("2", "a", 1), req("3", "locked", 1)},
			want: []string{"alone", "sold", "alone"}, insert: 1, take: 1,
		},
		"recorded keys take nothing": {
			reqs: []Request{req("old", "a", 2), req("gone", "a", 1), req("cancel", "a", 1), req("1", "a", 5)},
			want: []string{"replayed sold", "sold out, 0 left", "cancelled", "sold"}, insert: 1, take: 5,
		},
		"a recorded key is answered even where its SKU is locked": {
			reqs: []Request{{Key: "old", SKU: "a", Buyer: "b", Qty: 2}},
			want: []string{"replayed sold"},
		},
		"other contents": {
			reqs: []Request{req("old", "a", 3), req("old", "locked", 2), {Key: "old", SKU: "a", Buyer: "x", Qty: 2}},
			want: []string{"key reused", "key reused", "key reused"},
		},
		"a key twice in one batch": {
			reqs: []Request{req("1", "a", 2), req("1", "a", 2), req("1", "a", 1)},
			want: []string{"sold", "replayed sold", "key reused"}, insert: 1, take: 2,
		},
		"refusals are recorded when asked": {
			reqs: []Request{req("1", "empty", 1), req("1", "empty", 1), req("2", "a", 1)},
			mode: mode{recordRefusals: true},
			want: []string{"sold out, 0 left", "sold out, 0 left", "sold"}, insert: 2, take: 1,
		},
		"a quantity may span buckets": {
			reqs: []Request{req("1", "spread", 4), req("2", "spread", 3), req("3", "spread", 2)},
			want: []string{"sold", "sold out, 2 left", "sold"}, insert: 2,
		},
		"what fits beside a locked bucket is sold, and what does not is asked again": {
			reqs: []Request{req("1", "partly", 1), req("2", "partly", 2), req("3", "partly", 1)},
			want: []string{"sold", "alone", "sold"}, insert: 2,
		},
		"without a look-up nobody is refused": {
			reqs: []Request{req("1", "a", 4), req("2", "a", 2), req("3", "x", 1), req("4", "a", 1)},
			mode: mode{assumeNew: true, recordRefusals: true},
			want: []string{"sold", "passed over", "passed over", "sold"}, insert: 2, take: 5,
		},
		"after an attempt that may yet sell all are recorded": {
			reqs: []Request{req("1", "x", 1), req("2", "a", 6)},
			mode: mode{unresolved: true},
			want: []string{"unknown", "sold out, 5 left"}, insert: 2,
		},
		"an unknown SKU may be known later": {
			reqs: []Request{req("1", "x", 1), req("2", "a", 6)},
			mode: mode{recordRefusals: true},
			want: []string{"unknown", "sold out, 5 left"}, insert: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			books := driver.Books{Stock: stock, Skipped: skipped, Recorded: recorded}
			plan, answers := decide(orders(c.reqs...), books, c.mode)
			var got []string
			for _, a := range answers {
				got = append(got, verdict(a))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			var take int64
			for _, u := range plan.Take {
				if u.SKU == "a" {
					take += u.Qty
				}
			}
			if len(plan.Insert) != c.insert || take != c.take {
				t.Errorf("inserts %v, takes %v", plan.Insert, plan.Take)
			}
		})
	}
}

// TestPlanBalances: whatever the batch, what is taken is what is sold, and never more than there is
// in a bucket.
func TestPlanBalances(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		stock := map[string][]driver.Bucket{}
		for _, sku := range []string{"a", "b"} {
			for i := range 1 + random.Int32N(4) {
				stock[sku] = append(stock[sku], driver.Bucket{Number: i, Left: random.Int64N(12)})
			}
		}
		var reqs []Request
		for range random.IntN(30) {
			sku := []string{"a", "b", "x"}[random.IntN(3)]
			reqs = append(reqs, req(fmt.Sprint(random.IntN(20)), sku, 1+random.Int64N(5)))
		}
		plan, _ := decide(orders(reqs...), driver.Books{Stock: stock, Skipped: skipsNone}, mode{recordRefusals: random.IntN(2) == 0})
		sold := map[string]int64{}
		for _, row := range plan.Insert {
			if row.State == int16(ReservationSold) {
				sold[row.SKU] += row.Qty
			}
		}
		for _, u := range plan.Take {
			if there := stock[u.SKU][u.Bucket].Left; u.Qty < 1 || u.Qty > there {
				t.Fatalf("takes %d of %q: %d there", u.Qty, u.SKU, there)
			}
			sold[u.SKU] -= u.Qty
		}
		for sku, n := range sold {
			if n != 0 {
				t.Fatalf("%d of %q sold and not taken", n, sku)
			}
		}
		if !slices.IsSortedFunc(plan.Take, byBucket) {
			t.Fatalf("rows are not in the order of their buckets: %v", plan.Take)
		}
		byKey := func(a, b driver.Row) int { return strings.Compare(a.Key, b.Key) }
		if !slices.IsSortedFunc(plan.Insert, byKey) {
			t.Fatalf("rows are not in the order of their keys: %v", plan.Insert)
		}
	}
}

// TestARefusedCartNamesNoOther: a cart that was refused before names the SKU over whose limit it
// was, and none that was not short.
func TestARefusedCartNamesNoOther(t *testing.T) {
	t.Parallel()
	o, err := Cart{Key: "k", Buyer: "b", Lines: []Line{{SKU: "a", Qty: 1, Limit: 9}, {SKU: "z", Qty: 2, Limit: 1}}}.order()
	if err != nil {
		t.Fatal(err)
	}
	var limit *BuyerLimitError
	rows := refusal(&o, &BuyerLimitError{SKU: "z"})
	if err := replay(&o, rows).Err; !errors.As(err, &limit) || limit.SKU != "z" || limit.Wanted != 2 {
		t.Error(err)
	}
	var soldOut *SoldOutError
	rows = refusal(&o, &SoldOutError{SKU: "z"})
	if err := replay(&o, rows).Err; !errors.As(err, &soldOut) || soldOut.SKU != "" || strings.Contains(err.Error(), `"a"`) {
		t.Error(err)
	}
}
