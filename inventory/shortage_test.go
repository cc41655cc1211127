package inventory

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

func TestShortagesFollowWhatWasSeen(t *testing.T) {
	t.Parallel()
	var s shortages
	if s.covers(req("1", "a", 1)) {
		t.Error("a shortage before anything was seen")
	}
	reqs := []Request{req("1", "a", 9), req("2", "a", 2), req("3", "b", 1)}
	books := engine.Books{Stock: map[string][]engine.Bucket{"a": {{Left: 5}}, "b": {{Left: 5}}}, Skipped: none}
	_, answers := decide(reqs, books, mode{})
	s.note(reqs, answers, books)
	if s.covers(req("4", "a", 3)) || !s.covers(req("5", "a", 6)) || s.covers(req("6", "b", 99)) {
		t.Errorf("after 9 of 5 were refused: %v", s.left)
	}
	books.Stock["a"][0].Left = 50 // restocked, and everybody served
	_, answers = decide(reqs, books, mode{})
	s.note(reqs, answers, books)
	if s.covers(req("7", "a", 6)) {
		t.Errorf("a shortage that has ended: %v", s.left)
	}
}

func TestShortagesAreBounded(t *testing.T) {
	t.Parallel()
	var s shortages
	for i := range maxShortages + 10 {
		sku := fmt.Sprint(i)
		reqs := []Request{req("k", sku, 1)}
		books := engine.Books{Stock: map[string][]engine.Bucket{sku: {{}}}, Skipped: none}
		_, answers := decide(reqs, books, mode{})
		s.note(reqs, answers, books)
	}
	if len(s.left) > maxShortages {
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
