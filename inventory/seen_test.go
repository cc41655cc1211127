package inventory

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

func TestSeenFollowsWhatIsLeft(t *testing.T) {
	t.Parallel()
	var s seen
	if s.tooFew(req("1", "a", 1)) {
		t.Error("too few before anything was seen")
	}
	s.noteAll(driver.Books{Stock: map[string][]driver.Bucket{
		"a": {{Left: 5}, {Number: 1, Left: 4}}, "b": {{Left: 1}},
	}}, driver.Plan{Take: []driver.Units{{SKU: "a", Qty: 3}, {SKU: "a", Bucket: 1, Qty: 1}, {SKU: "b", Qty: 1}}})
	if s.tooFew(req("2", "a", 2)) || !s.tooFew(req("3", "a", 3)) || !s.tooFew(req("4", "b", 1)) {
		t.Errorf("not what is left in the first bucket: %v", s.stock)
	}
	s.forget("b")
	if s.tooFew(req("5", "b", 1)) {
		t.Error("too few of what was restocked")
	}
}

func TestClaimAddsUpABatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		batch []Request
		want  supply
	}{
		"enough":           {[]Request{req("1", "a", 2), req("2", "a", 3)}, enough},
		"too few":          {[]Request{req("1", "a", 2), req("2", "a", 3), req("3", "a", 1)}, few},
		"enough of each":   {[]Request{req("1", "a", 5), req("2", "b", 5)}, enough},
		"too few of one":   {[]Request{req("1", "a", 5), req("2", "b", 3), req("3", "b", 3)}, few},
		"none of one":      {[]Request{req("1", "a", 5), req("2", "out", 1)}, none},
		"nothing is known": {[]Request{req("1", "c", 99)}, unknown},
		"one is unknown":   {[]Request{req("1", "a", 5), req("2", "c", 99)}, unknown},
	} {
		var s seen
		s.note("a", 5)
		s.note("b", 5)
		s.note("out", 0)
		if got := s.claim(orders(c.batch...)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		s.unclaim(orders(c.batch...))
		if s.stock["a"] != (sight{true, 5, 0}) || len(s.stock) != 3 {
			t.Errorf("%s: after the claim: %v", name, s.stock)
		}
	}
}

func TestBatchesUnderWayCount(t *testing.T) {
	t.Parallel()
	var s seen
	s.note("a", 5)
	first := orders(req("1", "a", 4))
	s.claim(first)
	if got := s.claim(orders(req("2", "a", 2))); got != few {
		t.Errorf("2 of 5, of which 4 are claimed: %v", got)
	}
	if !s.tooFew(req("3", "a", 1)) {
		t.Error("a claim of the rest is not seen")
	}
	s.unclaim(first)
	if s.tooFew(req("3", "a", 3)) {
		t.Error("a claim that has ended is seen")
	}
}

func TestSeenIsBounded(t *testing.T) {
	t.Parallel()
	var s seen
	for i := range maxSeen + 10 {
		s.note(fmt.Sprint(i), 1)
	}
	if len(s.stock) > maxSeen {
		t.Errorf("%d are remembered", len(s.stock))
	}
}

func TestSlotsBoundAndRefuse(t *testing.T) {
	t.Parallel()
	s := newSlots(1, 1)
	if err := s.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() { waits <- s.enter(ctx) }()
	for s.waiting.Load() == 0 {
		select {
		case err := <-waits:
			t.Fatalf("entered beyond the bound: %v", err)
		default:
		}
	}
	if err := s.enter(t.Context()); !errors.Is(err, dblock.ErrOverloaded) {
		t.Errorf("got %v", err)
	}
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	s.leave()
	if err := s.enter(t.Context()); err != nil {
		t.Error(err)
	}
}
