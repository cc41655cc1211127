package inventory

import (
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

func TestLatchHoldsForAMoment(t *testing.T) {
	t.Parallel()
	l := newLatches(time.Second)
	now := time.Now()
	if l.holds("a", now) {
		t.Error("nothing was proved, and it holds")
	}
	l.prove("a", 0, now)
	if !l.holds("a", now.Add(999*time.Millisecond)) || l.holds("a", now.Add(time.Second)) {
		t.Error("it does not hold for as long as it may")
	}
	if l.holds("b", now) {
		t.Error("another SKU is held, too")
	}
	l.prove("a", 0, now.Add(5*time.Second))
	if !l.holds("a", now.Add(5500*time.Millisecond)) || l.holds("a", now.Add(6*time.Second)) {
		t.Error("another proof does not have it hold for as long as it may")
	}
}

// TestLatchKnowsWhatCameIn has units come in at every moment around the proof.
func TestLatchKnowsWhatCameIn(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"never", "before the batch", "before the proof", "after the proof"} {
		l := newLatches(time.Second)
		now := time.Now()
		if moment == "before the batch" {
			l.drop("a")
		}
		news := l.counter("a").Load()
		if moment == "before the proof" {
			l.drop("a")
		}
		l.prove("a", news, now)
		if moment == "after the proof" {
			l.drop("a")
		}
		if got, want := l.holds("a", now), moment == "never" || moment == "before the batch"; got != want {
			t.Errorf("units come in %s: it holds %v, want %v", moment, got, want)
		}
	}
}

// TestLatchProves is what a batch proves of its SKUs.
func TestLatchProves(t *testing.T) {
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
		s := &Store{latches: newLatches(time.Minute)}
		books := driver.Books{
			Stock:   map[string][]driver.Bucket{"a": c.buckets},
			Skipped: func(string) bool { return c.skipped },
		}
		s.latch(books, driver.Plan{Take: c.take}, s.beforeProof([]string{"a"}))
		if got := s.latches.holds("a", time.Now()); got != c.want {
			t.Errorf("%s: it holds %v, want %v", name, got, c.want)
		}
	}
}

func TestLatchesAreBounded(t *testing.T) {
	t.Parallel()
	l := newLatches(time.Minute)
	now := time.Now()
	for i := range 3 * maxLatches {
		l.prove(fmt.Sprint(i), l.counter(fmt.Sprint(i)).Load(), now)
	}
	if n := len(l.until); n > maxLatches {
		t.Errorf("%d SKUs are kept", n)
	}
	if !l.holds(fmt.Sprint(3*maxLatches-1), now) {
		t.Error("the last proof is not kept")
	}
}
