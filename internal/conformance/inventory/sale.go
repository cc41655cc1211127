package inventory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/sale"
	"github.com/dblock-go/dblock/inventory"
)

func sellsExactlyItsStock(t *testing.T, s *env) {
	units := int64(s.size(3200))
	r, err := sale.Sale{Name: "sale", Buyers: int(units), Stock: units, Seed: 1}.Run(t.Context(), s.Store, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(s.o.Strategy); err != nil {
		t.Error(err)
	}
	if r.Sold != units || r.Balance.Sold != units {
		t.Errorf("%d buyers wanted %d units: %d were told so, %d are in the books", units, units, r.Sold, r.Balance.Sold)
	}
	s.sound(t)
}

func tellsTheRestSoldOut(t *testing.T, s *env) {
	units, buyers := int64(s.size(3200)), s.size(32000)
	r, err := sale.Sale{Name: "sale", Buyers: buyers, Stock: units, Seed: 2}.Run(t.Context(), s.Store, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(s.o.Strategy); err != nil {
		t.Error(err)
	}
	if r.Sold != units || r.SoldOut != int64(buyers)-units {
		t.Errorf("%d sold, %d told that it is sold out", r.Sold, r.SoldOut)
	}
	s.sound(t)
}

// controlOversells shows that the sale and the audit would notice: the same crowd, on code that
// reads and then writes, as so much hand-written code does: CAS without its comparison.
func controlOversells(t *testing.T, e Inventory) {
	s := e.env(t, inventory.Options{})
	const units = 10
	s.stock(t, "sale", units)
	s.db.SetMaxOpenConns(16)
	read := make(chan struct{})
	var readers, sellers sync.WaitGroup
	readers.Add(16)
	for i := range 16 {
		sellers.Go(func() {
			var left int64
			err := s.db.QueryRowContext(t.Context(), "SELECT available FROM dblock_stock WHERE sku = 'sale'").Scan(&left)
			readers.Done()
			<-read
			if err != nil || left < 1 {
				t.Errorf("%d left, %v", left, err)
				return
			}
			_, err = s.db.ExecContext(t.Context(), fmt.Sprintf(
				"INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state) VALUES ('%d', 'sale', '', 1, 2)", i))
			if err == nil {
				_, err = s.db.ExecContext(t.Context(), fmt.Sprintf("UPDATE dblock_stock SET available = %d WHERE sku = 'sale'", left-1))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	readers.Wait()
	close(read)
	sellers.Wait()
	if b := s.balance(t, "sale"); b.Drift() == 0 || b.Sold <= units {
		t.Errorf("the control sold %d of %d and the audit says %d: the tests of selling exactly the stock could not fail", b.Sold, units, b.Drift())
	}
}

func sellsEveryUnitOfMixedQuantities(t *testing.T, s *env) {
	random := rand.New(rand.NewPCG(3, 0))
	var reqs []inventory.Request
	for i := range s.size(600) {
		reqs = append(reqs, order(fmt.Sprintf("order-%d", i), "sale", 1+random.Int64N(5)))
	}
	for i := range 100 { // enough small ones that the last unit finds a buyer
		reqs = append(reqs, order(fmt.Sprintf("small-%d", i), "sale", 1))
	}
	s.stock(t, "sale", int64(s.size(1000)))
	var sold int64
	for _, a := range crowd(t.Context(), s.Store, reqs) {
		var out *inventory.SoldOutError
		switch {
		case a.err == nil:
			sold += a.req.Qty
		case !errors.As(a.err, &out):
			t.Errorf("%s: %v", a.req.Key, a.err)
		case out.Available >= a.req.Qty:
			t.Errorf("%s was refused %d while %d were left", a.req.Key, a.req.Qty, out.Available)
		}
	}
	if b := s.balance(t, "sale"); sold != b.Sold || b.Available > 0 {
		t.Errorf("callers were told of %d units, the books hold %d, %d are left", sold, b.Sold, b.Available)
	}
	s.sound(t)
}

func aSoldOutSKUDoesNotStopTheRest(t *testing.T, s *env) {
	s.stock(t, "plenty", 1000)
	s.stock(t, "none", 0)
	s.stock(t, "few", 5)
	var reqs []inventory.Request
	for i := range 900 {
		sku := []string{"plenty", "none", "few", "never heard of"}[i%4]
		reqs = append(reqs, order(fmt.Sprintf("order-%d", i), sku, 1))
	}
	got := map[string]int{}
	for _, a := range crowd(t.Context(), s.Store, reqs) {
		switch {
		case a.err == nil:
			got[a.req.SKU+" sold"]++
		case errors.Is(a.err, inventory.ErrSoldOut):
			got[a.req.SKU+" sold out"]++
		case errors.Is(a.err, inventory.ErrUnknownSKU):
			got[a.req.SKU+" unknown"]++
		default:
			t.Errorf("%s: %v", a.req.Key, a.err)
		}
	}
	want := map[string]int{"plenty sold": 225, "none sold out": 225, "few sold": 5, "few sold out": 220, "never heard of unknown": 225}
	for what, n := range want {
		if got[what] != n {
			t.Errorf("%s: %d, want %d", what, got[what], n)
		}
	}
	s.sound(t)
}

func manySKUsAtOnceNeverDeadlock(t *testing.T, s *env) {
	const skus = 20
	each := s.size(60)
	stores := []*inventory.Store{s.Store, s.open(t, s.o), s.open(t, s.o), s.open(t, s.o)}
	for sku := range skus {
		s.stock(t, fmt.Sprintf("sku-%d", sku), int64(len(stores)*each))
	}
	var processes sync.WaitGroup
	for p, store := range stores {
		processes.Go(func() {
			var reqs []inventory.Request
			for i := range skus * each {
				reqs = append(reqs, order(fmt.Sprintf("order-%d-%d", p, i), fmt.Sprintf("sku-%d", (i*7+p)%skus), 1))
			}
			for _, a := range crowd(t.Context(), store, reqs) {
				if a.err != nil {
					t.Errorf("%s: %v", a.req.Key, a.err)
				}
			}
		})
	}
	processes.Wait()
	for sku := range skus {
		if b := s.balance(t, fmt.Sprintf("sku-%d", sku)); b.Available != 0 {
			t.Errorf("%d units of %s are left", b.Available, b.SKU)
		}
	}
	s.sound(t)
}

func aCancelledCallerGetsADefiniteEnd(t *testing.T, s *env) {
	s.stock(t, "sale", 2000)
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Reserve(dead, order("dead", "sale", 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Lookup(t.Context(), "dead"); !errors.Is(err, inventory.ErrNotFound) {
		t.Errorf("a call with a dead context was executed: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var callers sync.WaitGroup
	reqs := ordersFor(1000, "sale")
	got := make([]error, len(reqs))
	for i, r := range reqs {
		callers.Go(func() {
			_, got[i] = s.Reserve(ctx, r)
			if i == 100 {
				cancel()
			}
		})
	}
	callers.Wait()
	// A caller of the same key waits for whatever the server still does with it.
	for i, a := range crowd(t.Context(), s.Store, reqs) {
		switch {
		case a.err != nil:
			t.Errorf("%s: %v", a.req.Key, a.err)
		case got[i] == nil && !a.res.Replayed:
			t.Errorf("%s: a sale that the caller was told of was not recorded", a.req.Key)
		case got[i] != nil && !suite.IsUnknown(got[i]) && a.res.Replayed:
			t.Errorf("%s: the caller was told that nothing was written, and it was: %v", a.req.Key, got[i])
		}
	}
	s.sound(t)
}

// refusesOrdersOnceClosed closes a Store in mid-sale: who is told that the sale took place is in
// the books when Close returns, and nobody else is.
func refusesOrdersOnceClosed(t *testing.T, s *env) {
	s.stock(t, "sale", 2000)
	store := s.open(t, s.o)
	answers := make(chan []told)
	go func() { answers <- crowd(t.Context(), store, ordersFor(1000, "sale")) }()
	for range 2 { // the second time there is nothing left to do
		if err := store.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	books := s.balance(t, "sale")
	sold := int64(0)
	for _, a := range <-answers {
		switch {
		case a.err == nil:
			sold++
		case !errors.Is(a.err, dblock.ErrClosed):
			t.Errorf("%s: %v", a.req.Key, a.err)
		}
	}
	if books.Sold != sold {
		t.Errorf("%d were told that they have it, %d were in the books when the Store was closed", sold, books.Sold)
	}
	for name, call := range map[string]func() error{
		"Reserve": func() error { _, err := store.Reserve(t.Context(), order("late", "sale", 1)); return err },
		"Confirm": func() error { _, err := store.Confirm(t.Context(), "late"); return err },
		"Cancel":  func() error { _, err := store.Cancel(t.Context(), "late"); return err },
		"Restock": func() error {
			_, err := store.Restock(t.Context(), inventory.Adjustment{ID: "late", SKU: "sale", Delta: 1})
			return err
		},
		"Sweep":      func() error { _, err := store.Sweep(t.Context(), 1); return err },
		"RunSweeper": func() error { return store.RunSweeper(t.Context(), time.Second) },
		"Lookup":     func() error { _, err := store.Lookup(t.Context(), "late"); return err },
		"Audit":      func() error { _, err := store.Audit(t.Context(), "sale"); return err },
		"Repair":     func() error { _, err := store.Repair(t.Context(), "sale"); return err },
		"Rebalance":  func() error { return store.Rebalance(t.Context(), "sale", 1) },
	} {
		if err := call(); !errors.Is(err, dblock.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	s.sound(t)
}
