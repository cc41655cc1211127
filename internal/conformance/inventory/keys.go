package inventory

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dblock-go/dblock/inventory"
)

func answersARepeatedKeyAsBefore(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	first, err := s.Reserve(t.Context(), order("k", "sale", 3))
	if err != nil {
		t.Fatal(err)
	}
	want := inventory.Reservation{Key: "k", SKU: "sale", Buyer: "buyer of k", Qty: 3, State: inventory.Sold}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Error(diff)
	}
	again, err := s.Reserve(t.Context(), order("k", "sale", 3))
	if err != nil {
		t.Fatal(err)
	}
	want.Replayed = true
	if diff := cmp.Diff(want, again); diff != "" {
		t.Error(diff)
	}
	if b := s.balance(t, "sale"); b.Available != 7 || b.Sold != 3 {
		t.Errorf("the repetition was sold too: %+v", b)
	}
}

func sellsAKeyOnceHoweverOftenSent(t *testing.T, s *env) {
	s.stock(t, "sale", 1000)
	other := s.open(t, s.o)
	var reqs []inventory.Request
	for i := range s.size(400) {
		reqs = append(reqs, order(fmt.Sprintf("order-%d", i%50), "sale", 2))
	}
	elsewhere := make(chan []told)
	go func() { elsewhere <- crowd(t.Context(), other, reqs) }()
	fresh := 0
	for _, a := range append(crowd(t.Context(), s.Store, reqs), <-elsewhere...) {
		if a.err != nil {
			t.Errorf("%s: %v", a.req.Key, a.err)
		} else if !a.res.Replayed {
			fresh++
		}
	}
	if b := s.balance(t, "sale"); fresh != 50 || b.Sold != 100 {
		t.Errorf("50 orders for 2, each sent often: %d were called new, %d units were sold", fresh, b.Sold)
	}
	s.sound(t)
}

func refusesAKeyWithOtherContents(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	s.stock(t, "other", 10)
	if _, err := s.Reserve(t.Context(), order("k", "sale", 1)); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]inventory.Request{
		"other SKU":       {Key: "k", SKU: "other", Buyer: "buyer of k", Qty: 1},
		"unknown SKU":     {Key: "k", SKU: "nonsense", Buyer: "buyer of k", Qty: 1},
		"other quantity":  {Key: "k", SKU: "sale", Buyer: "buyer of k", Qty: 2},
		"too many":        {Key: "k", SKU: "sale", Buyer: "buyer of k", Qty: 2000},
		"other buyer":     {Key: "k", SKU: "sale", Buyer: "somebody", Qty: 1},
		"nobody as buyer": {Key: "k", SKU: "sale", Qty: 1},
	} {
		var reused *inventory.KeyReusedError
		if _, err := s.Reserve(t.Context(), r); !errors.As(err, &reused) || !errors.Is(err, inventory.ErrKeyReused) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	var reqs []inventory.Request // the same key for two SKUs at once: one of them has it
	for i := range 40 {
		reqs = append(reqs, inventory.Request{Key: "race", SKU: []string{"sale", "other"}[i%2], Qty: 1})
	}
	winner := ""
	for _, a := range crowd(t.Context(), s.Store, reqs) {
		switch {
		case a.err == nil && winner == "":
			winner = a.req.SKU
		case a.err == nil && winner != a.req.SKU:
			t.Errorf("one key was sold for both SKUs")
		case a.err != nil && !errors.Is(a.err, inventory.ErrKeyReused):
			t.Error(a.err)
		}
	}
	s.sound(t)
}

func recordsRefusalsWhenAsked(t *testing.T, s *env) {
	s.o.RecordRefusals = true
	store := s.open(t, s.o)
	s.stock(t, "sale", 1)
	if _, err := s.Reserve(t.Context(), order("plain", "sale", 2)); !errors.Is(err, inventory.ErrSoldOut) {
		t.Fatal(err)
	}
	var out *inventory.SoldOutError
	_, err := store.Reserve(t.Context(), order("k", "sale", 2))
	if !errors.As(err, &out) || out.Available != 1 || out.Wanted != 2 || out.Replayed {
		t.Fatalf("got %v", err)
	}
	if _, err := s.Restock(t.Context(), inventory.Adjustment{ID: "more", SKU: "sale", Delta: 100}); err != nil {
		t.Fatal(err)
	}
	res, err := store.Reserve(t.Context(), order("k", "sale", 2))
	if !errors.As(err, &out) || !out.Replayed || !res.Replayed || res.State != inventory.Refused {
		t.Errorf("a recorded refusal was answered with %+v, %v", res, err)
	}
	if res, err := s.Reserve(t.Context(), order("plain", "sale", 2)); err != nil || res.Replayed {
		t.Errorf("a refusal that was not recorded was answered with %+v, %v", res, err)
	}
	if b := s.balance(t, "sale"); b.Sold != 2 || b.Available != 99 {
		t.Errorf("%+v", b)
	}
	s.sound(t)
}

func restocksOnce(t *testing.T, s *env) {
	ctx := t.Context()
	send := func(id, sku string, delta int64) (bool, error) {
		return s.Restock(ctx, inventory.Adjustment{ID: id, SKU: sku, Delta: delta})
	}
	for _, replayed := range []bool{false, true, true} {
		if got, err := send("delivery", "sale", 10); err != nil || got != replayed {
			t.Errorf("got %v, %v, want %v", got, err, replayed)
		}
	}
	if _, err := send("delivery", "sale", 11); !errors.Is(err, inventory.ErrKeyReused) {
		t.Errorf("got %v", err)
	}
	if _, err := send("delivery", "other", 10); !errors.Is(err, inventory.ErrKeyReused) {
		t.Errorf("got %v", err)
	}
	if _, err := send("write-off", "sale", -4); err != nil {
		t.Error(err)
	}
	var out *inventory.SoldOutError
	if _, err := send("too much", "sale", -7); !errors.As(err, &out) || out.Available != 6 || out.Wanted != 7 {
		t.Errorf("got %v", err)
	}
	if _, err := send("nothing to write off", "nonsense", -1); !errors.Is(err, inventory.ErrUnknownSKU) {
		t.Errorf("got %v", err)
	}
	if _, err := send("known, but empty", "empty", 0); err != nil {
		t.Error(err)
	}
	if _, err := s.Reserve(ctx, order("k", "empty", 1)); !errors.Is(err, inventory.ErrSoldOut) {
		t.Errorf("got %v", err)
	}
	ends := make(chan error)
	for i := range 40 { // the first adjustments of one new SKU, each sent twice, all at once
		go func() { _, err := send(fmt.Sprintf("race-%d", i%20), "race", 1); ends <- err }()
	}
	for range 40 {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
	for sku, want := range map[string]int64{"sale": 6, "empty": 0, "race": 20} {
		if b := s.balance(t, sku); b.Available != want || b.Restocked != want {
			t.Errorf("%+v, want %d", b, want)
		}
	}
	s.sound(t)
}

func findsWhatIsRecorded(t *testing.T, s *env) {
	s.stock(t, "Größe ' \" \\ ; --", 10)
	odd := inventory.Request{Key: "Ünïcode 🔒 ' \" \\ ; -- ? $1 %", SKU: "Größe ' \" \\ ; --", Buyer: "O'Brien\n\t", Qty: 10}
	if _, err := s.Reserve(t.Context(), odd); err != nil {
		t.Fatal(err)
	}
	got, err := s.Lookup(t.Context(), odd.Key)
	want := inventory.Reservation{Key: odd.Key, SKU: odd.SKU, Buyer: odd.Buyer, Qty: 10, State: inventory.Sold}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := s.Lookup(t.Context(), strings.ToUpper(odd.Key)); !errors.Is(err, inventory.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Reserve(t.Context(), order("k", "GRÖSSE", 1)); !errors.Is(err, inventory.ErrUnknownSKU) {
		t.Errorf("got %v", err)
	}
	longest := inventory.Request{Key: strings.Repeat("k", 255), SKU: strings.Repeat("s", 255), Buyer: strings.Repeat("b", 255), Qty: 1}
	s.stock(t, longest.SKU[:200], 1) // its adjustment's ID is longer than the SKU
	if _, err := s.Restock(t.Context(), inventory.Adjustment{ID: "longest", SKU: longest.SKU, Delta: inventory.MaxQty}); err != nil {
		t.Error(err)
	}
	if _, err := s.Reserve(t.Context(), longest); err != nil {
		t.Error(err)
	}
	s.sound(t)
}

func auditFindsTampering(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	s.stock(t, "other", 5)
	if _, err := s.Reserve(t.Context(), order("k", "sale", 4)); err != nil {
		t.Fatal(err)
	}
	s.sound(t)
	s.exec(t, "UPDATE dblock_stock SET available = available + 2 WHERE sku = 'sale' AND bucket = 0")
	if b := s.balance(t, "sale"); b.Drift() != -2 {
		t.Errorf("two units appeared: the audit says %d", b.Drift())
	}
	s.exec(t, "DELETE FROM dblock_reservation WHERE sku = 'sale'")
	if b := s.balance(t, "sale"); b.Drift() != 2 {
		t.Errorf("two units appeared and an order for four is gone: the audit says %d", b.Drift())
	}
	if b := s.balance(t, "other"); b.Drift() != 0 {
		t.Errorf("the audit says %d of a SKU that nobody touched", b.Drift())
	}
}
