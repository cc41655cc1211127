package inventory

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

func req(key, sku string, qty int64) Request {
	return Request{Key: key, SKU: sku, Buyer: "b", Qty: qty}
}

// verdict names what a request was told.
func verdict(a answer) string {
	var out *SoldOutError
	switch {
	case a.Alone:
		return "alone"
	case errors.As(a.Err, &out):
		return fmt.Sprintf("sold out, %d left", out.Available)
	case errors.Is(a.Err, ErrKeyReused):
		return "key reused"
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
	stock := map[string]int64{"a": 5, "empty": 0}
	recorded := map[string]engine.Row{
		"old":    {Key: "old", SKU: "a", Buyer: "b", Qty: 2, State: int16(Sold)},
		"gone":   {Key: "gone", SKU: "a", Buyer: "b", Qty: 1, State: int16(Refused)},
		"cancel": {Key: "cancel", SKU: "a", Buyer: "b", Qty: 1, State: int16(Cancelled)},
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
			want: []string{"replayed sold", "sold out, 0 left", "replayed cancelled", "sold"}, insert: 1, take: 5,
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
		"without a look-up nobody is refused": {
			reqs: []Request{req("1", "a", 4), req("2", "a", 2), req("3", "x", 1), req("4", "a", 1)},
			mode: mode{assumeNew: true, recordRefusals: true},
			want: []string{"sold", "alone", "alone", "sold"}, insert: 2, take: 5,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			books := engine.Books{Stock: stock, Skipped: map[string]bool{"locked": true}, Recorded: recorded}
			plan, answers := decide(c.reqs, books, c.mode)
			var got []string
			for _, a := range answers {
				got = append(got, verdict(a))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			var take int64
			for _, u := range plan.Take {
				take += u.Qty
			}
			if len(plan.Insert) != c.insert || take != c.take {
				t.Errorf("inserts %v, takes %v", plan.Insert, plan.Take)
			}
		})
	}
}

// TestPlanBalances: whatever the batch, what is taken is what is sold, and never more than there is.
func TestPlanBalances(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		stock := map[string]int64{"a": random.Int64N(20), "b": random.Int64N(20)}
		var reqs []Request
		for range random.IntN(30) {
			sku := []string{"a", "b", "x"}[random.IntN(3)]
			reqs = append(reqs, req(fmt.Sprint(random.IntN(20)), sku, 1+random.Int64N(5)))
		}
		plan, _ := decide(reqs, engine.Books{Stock: stock}, mode{recordRefusals: random.IntN(2) == 0})
		sold := map[string]int64{}
		for _, row := range plan.Insert {
			if row.State == int16(Sold) {
				sold[row.SKU] += row.Qty
			}
		}
		for _, u := range plan.Take {
			if u.Qty != sold[u.SKU] || u.Qty > stock[u.SKU] {
				t.Fatalf("takes %d of %q: %d sold, %d there", u.Qty, u.SKU, sold[u.SKU], stock[u.SKU])
			}
			delete(sold, u.SKU)
		}
		if len(sold) > 0 {
			t.Fatalf("sold and not taken: %v", sold)
		}
		byKey := func(a, b engine.Row) int { return strings.Compare(a.Key, b.Key) }
		if !slices.IsSortedFunc(plan.Insert, byKey) {
			t.Fatalf("rows are not in the order of their keys: %v", plan.Insert)
		}
	}
}
