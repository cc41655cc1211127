package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

func limited(key, buyer string, qty, limit int64) order {
	return order{Request: Request{Key: key, SKU: "a", Buyer: buyer, Qty: qty, Limit: limit}}
}

func TestKnownIsWhatWasRecorded(t *testing.T) {
	t.Parallel()
	k := newKnown()
	sold := answer{Value: outcome{State: ReservationSold}}
	replayed := answer{Value: outcome{State: ReservationSold, Replayed: true}}
	var passed answer
	passed.Value.passed = true
	for _, c := range []struct {
		o    order
		a    answer
		then bool // whether the same order is known to be recorded
		used int64
	}{
		{limited("sold", "ann", 2, 9), sold, true, 2},
		{limited("sold, too", "ann", 3, 9), sold, true, 5},
		{limited("without a limit", "ann", 3, 0), sold, true, 5},
		{limited("replayed", "ann", 1, 9), replayed, true, 5},
		{limited("cancelled before", "ann", 1, 9), answer{Value: outcome{State: ReservationCancelled, Replayed: true}, Err: ErrCancelled}, true, 5},
		{limited("refused", "ann", 1, 9), answer{Value: outcome{State: ReservationRefused}, Err: ErrSoldOut}, false, 5},
		{limited("reused", "ann", 1, 9), answer{Err: ErrKeyReused}, false, 5},
		{limited("passed over", "ann", 1, 9), passed, false, 5},
		{limited("alone", "ann", 1, 9), answer{Alone: true}, false, 5},
	} {
		k.noteAnswers([]order{c.o}, []answer{c.a})
		if got := k.foregone(&c.o); got != c.then {
			t.Errorf("%s: known to be recorded: %v", c.o.Key, got)
		}
		fits, over := limited("new", "ann", 9-c.used, 9), limited("new", "ann", 10-c.used, 9)
		if k.foregone(&fits) || !k.foregone(&over) {
			t.Errorf("%s: not %d used of 9", c.o.Key, c.used)
		}
	}
	both := driver.Takes{Buyers: []string{"ann", "bob"}, Units: []int64{1, 2}}
	for sku, want := range map[string][2]driver.Takes{
		"a": {{Buyers: []string{"bob"}, Units: []int64{2}}, {Buyers: []string{"ann"}, Units: []int64{1}}},
		"b": {both, {}},
	} {
		strangers, regulars := k.split(sku, both)
		if diff := cmp.Diff(want, [2]driver.Takes{strangers, regulars}, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: who is new to it is not told from who is not: %s", sku, diff)
		}
	}
	quota := driver.Quota{SKU: "a", Buyer: "ann"}
	k.noteReturned([]driver.Count{{Quota: quota, Qty: 4}, {Quota: driver.Quota{SKU: "a", Buyer: "bob"}, Qty: 4}})
	if over := limited("new", "ann", 8, 8); !k.foregone(&over) {
		t.Error("what was given back is not 4 of ann's 5")
	}
	k.noteUsed(map[driver.Quota]int64{quota: 7})
	if over := limited("new", "ann", 2, 8); !k.foregone(&over) {
		t.Error("what was read did not count")
	}
}

// TestRecentForgetsWhatNobodyAsksFor: a bot that never rests is remembered, however many buyers come in between.
func TestRecentForgetsWhatNobodyAsksFor(t *testing.T) {
	t.Parallel()
	var r recent
	if _, found := r.get(recentSets); found {
		t.Error("found in nothing")
	}
	bot := uint64(recentSets)
	r.put(bot, 42)
	for i := range uint64(10 * recentWays) {
		r.put((i+2)*recentSets, int64(i)) // all of one set
		if v, found := r.get(bot); !found || v != 42 {
			t.Fatalf("the bot is forgotten after %d others: %d, %v", i, v, found)
		}
	}
	kept := 0
	for i := range uint64(10 * recentWays) {
		if v, found := r.get((i + 2) * recentSets); found {
			if kept++; v != int64(i) {
				t.Errorf("%d is remembered as %d", i, v)
			}
		}
	}
	if kept != recentWays-1 {
		t.Errorf("%d others are remembered, of the last %d", kept, recentWays-1)
	}
	r.put(bot, 43)
	if v, _ := r.get(bot); v != 43 {
		t.Errorf("%d in place of 42", v)
	}
}
