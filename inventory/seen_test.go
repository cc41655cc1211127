package inventory

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

func TestSeenFollowsWhatIsLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spread bool
		left   int64 // of "a", once 3 are taken from bucket 0 and 1 from bucket 1
	}{
		"the first bucket": {false, 2},
		"all buckets":      {true, 5},
	} {
		s := seen{spread: c.spread}
		if s.tooFew(req("1", "a", 1)) {
			t.Errorf("%s: too few before anything was seen", name)
		}
		s.noteAll(engine.Books{Stock: map[string][]engine.Bucket{
			"a": {{Left: 5}, {Number: 1, Left: 4}}, "b": {{Left: 1}},
		}}, engine.Plan{Take: []engine.Units{{SKU: "a", Qty: 3}, {SKU: "a", Bucket: 1, Qty: 1}, {SKU: "b", Qty: 1}}})
		if s.tooFew(req("2", "a", c.left)) || !s.tooFew(req("3", "a", c.left+1)) || !s.tooFew(req("4", "b", 1)) {
			t.Errorf("%s: %v", name, s.left)
		}
		s.forget("b")
		if s.tooFew(req("5", "b", 1)) {
			t.Errorf("%s: too few of what was restocked", name)
		}
	}
}

func TestSeenAddsUpABatch(t *testing.T) {
	t.Parallel()
	var s seen
	s.note("a", 5)
	s.note("b", 5)
	for name, c := range map[string]struct {
		batch []Request
		want  bool
	}{
		"enough":           {[]Request{req("1", "a", 2), req("2", "a", 3)}, false},
		"too few":          {[]Request{req("1", "a", 2), req("2", "a", 3), req("3", "a", 1)}, true},
		"enough of each":   {[]Request{req("1", "a", 5), req("2", "b", 5)}, false},
		"too few of one":   {[]Request{req("1", "a", 5), req("2", "b", 3), req("3", "b", 3)}, true},
		"nothing is known": {[]Request{req("1", "c", 99)}, false},
	} {
		if got := s.tooFew(c.batch...); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestSeenIsBounded(t *testing.T) {
	t.Parallel()
	var s seen
	for i := range maxSeen + 10 {
		s.note(fmt.Sprint(i), 1)
	}
	if len(s.left) > maxSeen {
		t.Errorf("%d are remembered", len(s.left))
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
