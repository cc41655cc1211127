package inventory

import (
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// isSoldOut reports that an SKU counts as sold out.
func isSoldOut(c *skuCache, sku string, now time.Time) bool {
	o := order{Request: req("k", sku, 1)}
	_, sold := c.soldOut(&o, now)
	return sold
}

// lacks reports that fewer units of an SKU were seen than an order wants.
func lacks(c *skuCache, sku string, qty int64) bool {
	o := order{Request: req("k", sku, qty)}
	return c.lacks(&o)
}

func TestSoldOutIsRememberedForAMoment(t *testing.T) {
	t.Parallel()
	c := newCache(time.Second)
	now := time.Now()
	if isSoldOut(c, "a", now) {
		t.Error("nothing was proved, and it counts as sold out")
	}
	c.noteSoldOut(reading{at: now}, "a")
	if !isSoldOut(c, "a", now.Add(999*time.Millisecond)) || isSoldOut(c, "a", now.Add(time.Second)) {
		t.Error("it is not remembered for as long as it may be")
	}
	if isSoldOut(c, "b", now) {
		t.Error("another SKU is sold out, too")
	}
	c.noteSoldOut(reading{at: now.Add(5 * time.Second)}, "a")
	if !isSoldOut(c, "a", now.Add(5500*time.Millisecond)) || isSoldOut(c, "a", now.Add(6*time.Second)) {
		t.Error("another proof is not remembered for as long as it may be")
	}
}

// TestTheCacheKnowsWhatCameIn has units come in at every moment around the proof.
func TestTheCacheKnowsWhatCameIn(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"never", "before the batch", "before the proof", "after the proof", "and are forgotten"} {
		c := newCache(time.Second)
		if moment == "before the batch" {
			c.cameIn("a")
		}
		began := c.begin()
		if moment == "before the proof" || moment == "and are forgotten" {
			c.cameIn("a")
		}
		if moment == "and are forgotten" {
			for i := range maxSKUs {
				c.noteLeft(fmt.Sprint(i), 1)
			}
		}
		c.noteSoldOut(began, "a")
		if moment == "after the proof" {
			c.cameIn("a")
		}
		if got, want := isSoldOut(c, "a", began.at), moment == "never" || moment == "before the batch"; got != want {
			t.Errorf("units come in %s: sold out %v, want %v", moment, got, want)
		}
	}
}

// TestABatchProves is what a batch proves of its SKUs.
func TestABatchProves(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		buckets []driver.Bucket
		take    []driver.Units
		skipped bool
		want    bool
	}{
		"nothing was left":        {buckets: []driver.Bucket{{}, {Number: 1}}, want: true},
		"the batch took the rest": {buckets: []driver.Bucket{{Left: 2}}, take: []driver.Units{{SKU: "a", Qty: 2}}, want: true},
		"one unit is left":        {buckets: []driver.Bucket{{Left: 2}}, take: []driver.Units{{SKU: "a", Qty: 1}}},
		"a row was locked":        {buckets: []driver.Bucket{{}}, skipped: true},
	} {
		cache := newCache(time.Minute)
		books := driver.Books{
			Stock:   map[string][]driver.Bucket{"a": c.buckets},
			Skipped: func(string) bool { return c.skipped },
		}
		cache.noteSoldOut(cache.begin(), cache.soldOutBy(books, driver.Plan{Take: c.take})...)
		if got := isSoldOut(cache, "a", time.Now()); got != c.want {
			t.Errorf("%s: sold out %v, want %v", name, got, c.want)
		}
	}
}

func TestTheCacheFollowsWhatIsLeft(t *testing.T) {
	t.Parallel()
	c := newCache(0)
	if lacks(c, "a", 1) {
		t.Error("too few before anything was seen")
	}
	c.noteBooks(driver.Books{Stock: map[string][]driver.Bucket{
		"a": {{Left: 5}, {Number: 1, Left: 4}}, "b": {{Left: 1}},
	}}, driver.Plan{Take: []driver.Units{{SKU: "a", Qty: 3}, {SKU: "a", Bucket: 1, Qty: 1}, {SKU: "b", Qty: 1}}}, 0)
	if lacks(c, "a", 2) || !lacks(c, "a", 3) || !lacks(c, "b", 1) {
		t.Errorf("not what is left in the first bucket: %v", c.skus)
	}
	c.cameIn("b")
	if lacks(c, "b", 1) {
		t.Error("too few of what was restocked")
	}
}

func TestSupplyAddsUpABatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		batch []Request
		want  supply
	}{
		"enough":           {[]Request{req("1", "a", 2), req("2", "a", 3)}, enough},
		"too few":          {[]Request{req("1", "a", 2), req("2", "a", 3), req("3", "a", 1)}, short},
		"enough of each":   {[]Request{req("1", "a", 5), req("2", "b", 5)}, enough},
		"too few of one":   {[]Request{req("1", "a", 5), req("2", "b", 3), req("3", "b", 3)}, short},
		"none of one":      {[]Request{req("1", "a", 5), req("2", "out", 1)}, none},
		"nothing is known": {[]Request{req("1", "c", 99)}, unknown},
		"one is unknown":   {[]Request{req("1", "a", 5), req("2", "c", 99)}, unknown},
	} {
		cache := newCache(0)
		cache.noteLeft("a", 5)
		cache.noteLeft("b", 5)
		cache.noteLeft("out", 0)
		if got := cache.supply(orders(c.batch...)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := newCache(time.Minute)
	for i := range maxSKUs + 10 {
		c.noteLeft(fmt.Sprint(i), 1)
	}
	if len(c.skus) > maxSKUs {
		t.Errorf("%d SKUs are remembered", len(c.skus))
	}
	c.noteSoldOut(c.begin(), "a")
	if !isSoldOut(c, "a", time.Now()) {
		t.Error("the last proof is not kept")
	}
}

func limited(key, buyer string, qty, limit int64) order {
	return order{Request: Request{Key: key, SKU: "a", Buyer: buyer, Qty: qty, Limit: limit}}
}

func TestTheCacheKnowsWhatWasRecorded(t *testing.T) {
	t.Parallel()
	c := newCache(0)
	sold := result{Value: outcome{State: ReservationSold}}
	replayed := result{Value: outcome{State: ReservationSold, Replayed: true}}
	var passed result
	passed.Value.passed = true
	for _, tt := range []struct {
		o    order
		a    result
		then bool // whether the same order is known to be recorded
		used int64
	}{
		{limited("sold", "ann", 2, 9), sold, true, 2},
		{limited("sold, too", "ann", 3, 9), sold, true, 5},
		{limited("without a limit", "ann", 3, 0), sold, true, 5},
		{limited("replayed", "ann", 1, 9), replayed, true, 5},
		{limited("cancelled before", "ann", 1, 9), result{Value: outcome{State: ReservationCancelled, Replayed: true}, Err: ErrCancelled}, true, 5},
		{limited("refused", "ann", 1, 9), result{Value: outcome{State: ReservationRefused}, Err: ErrSoldOut}, false, 5},
		{limited("reused", "ann", 1, 9), result{Err: ErrKeyReused}, false, 5},
		{limited("passed over", "ann", 1, 9), passed, false, 5},
		{limited("alone", "ann", 1, 9), result{Alone: true}, false, 5},
	} {
		c.noteRecorded([]order{tt.o}, []result{tt.a})
		if got := c.isRecorded(&tt.o); got != tt.then {
			t.Errorf("%s: known to be recorded: %v", tt.o.Key, got)
		}
		fits, over := limited("new", "ann", 9-tt.used, 9), limited("new", "ann", 10-tt.used, 9)
		if c.isRecorded(&fits) || !c.isRecorded(&over) {
			t.Errorf("%s: not %d used of 9", tt.o.Key, tt.used)
		}
	}
	quota := driver.Quota{SKU: "a", Buyer: "ann"}
	c.noteReturned([]driver.Count{{Quota: quota, Qty: 4}, {Quota: driver.Quota{SKU: "a", Buyer: "bob"}, Qty: 4}})
	if over := limited("new", "ann", 8, 8); !c.isRecorded(&over) {
		t.Error("what was given back is not 4 of ann's 5")
	}
	c.noteUsed(map[driver.Quota]int64{quota: 7})
	if over := limited("new", "ann", 2, 8); !c.isRecorded(&over) {
		t.Error("what was read did not count")
	}
}
