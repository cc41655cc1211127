package inventory

import (
	"os"
	"testing"

	"github.com/dblock-go/dblock/internal/orders"
)

// orderFile is a morning's real trade, seen from an engine room.
const orderFile = "../../internal/orders/testdata/online_retail_2010-12-01.csv"

// replaysARealOrderFile sends it twice from 64 goroutines, with half the stock it takes.
func replaysARealOrderFile(t *testing.T, s *env) {
	f, err := os.Open(orderFile)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	file, err := orders.Read(f)
	if err != nil || len(file.Lines) != 999 || len(file.Bad) != 0 {
		t.Fatalf("read %d lines, %d bad, %v", len(file.Lines), len(file.Bad), err)
	}
	s.o.RecordRefusals = true
	store := s.open(t, s.o)
	for _, a := range orders.HalfStock(file.Lines) {
		if _, err := store.Restock(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	first, err := orders.Replay(t.Context(), store, file.Lines, 64, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if first.Seen != 0 || first.Accepted == 0 || first.SoldOut == 0 || first.Returned == 0 ||
		first.Accepted+first.SoldOut+first.Returned != len(file.Lines) {
		t.Errorf("the first time: %+v", first)
	}
	s.sound(t)
	before, err := store.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := orders.Replay(t.Context(), store, file.Lines, 64, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if want := (orders.Report{Seen: len(file.Lines)}); again != want {
		t.Errorf("the second time: %+v, want all of them already seen", again)
	}
	after, err := store.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range before {
		if after[i] != b {
			t.Errorf("the second time changed %+v to %+v", b, after[i])
		}
	}
	s.sound(t)
}
