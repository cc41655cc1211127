package inventory

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/dblock-go/dblock/internal/orders"
	"github.com/dblock-go/dblock/inventory"
)

const invoiceClerks = 64 // who send carts at once

// invoices are the real order file: an invoice is a cart, what is returned is restocked. A name of its own lets the same
// file be sold several times.
func invoices(t *testing.T, name string) (stock, deeds []op) {
	t.Helper()
	f, err := os.Open(orderFile)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	file, err := orders.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	at := make(map[string]int) // by invoice
	for i, l := range file.Lines {
		l.SKU = name + l.SKU
		file.Lines[i] = l
		invoice, _, _ := strings.Cut(name+l.Key, "/")
		if l.Qty < 0 {
			deeds = append(deeds, op{What: toRestock, Adjustment: inventory.Adjustment{ID: name + l.Key, SKU: l.SKU, Delta: -l.Qty}})
			continue
		}
		if _, begun := at[invoice]; !begun {
			at[invoice] = len(deeds)
			deeds = append(deeds, op{What: toCart, Request: inventory.Request{Key: invoice, Buyer: l.Buyer}})
		}
		d := &deeds[at[invoice]]
		d.Lines = append(d.Lines, inventory.Line{SKU: l.SKU, Qty: l.Qty})
	}
	for _, a := range orders.HalfStock(file.Lines) {
		stock = append(stock, op{What: toRestock, Adjustment: a})
	}
	return stock, deeds
}

// sellsRealInvoices sells them with ample stock, in three orders: what is left is what is left where they are sold one after
// the other.
func sellsRealInvoices(t *testing.T, s *env) {
	s.keepsBooks(t)
	m := newModel(false)
	for seed := range uint64(3) {
		stock, deeds := invoices(t, fmt.Sprintf("seed %d, ", seed))
		for i := range stock {
			stock[i].Adjustment.Delta *= 3
		}
		for _, d := range append(slices.Clone(stock), deeds...) {
			if r := m.do(d); r.Kind != "" {
				t.Fatalf("one after the other: %+v", r)
			}
		}
		s.doByClerks(t, s.Store, stock)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(deeds), func(i, j int) { deeds[i], deeds[j] = deeds[j], deeds[i] })
		for i, r := range s.doByClerks(t, s.Store, deeds) {
			if r.Kind != "" || r.Replayed {
				t.Errorf("%+v: %+v", deeds[i], r)
			}
		}
	}
	s.sameBooks(t, m)
}

// sellsScarceInvoices sells them with half the stock: what became of each is what would have become of it had they been sold
// one after the other, in the order of their commits.
func sellsScarceInvoices(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.o.RecordRefusals = true
	store := s.open(t, s.o)
	refused := 0
	deeds, told := map[string]op{}, map[string]reply{}
	for seed := range uint64(3) {
		stock, of := invoices(t, fmt.Sprintf("seed %d, ", seed))
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		for _, some := range [][]op{stock, of} {
			for i, r := range s.doByClerks(t, store, some) {
				if deeds[some[i].id()], told[some[i].id()] = some[i], r; r.Kind == isSoldOut {
					refused++
				}
			}
		}
	}
	m := newModel(true)
	for _, id := range s.inOrderOfCommits(t, told) {
		want := m.do(deeds[id])
		got := told[id]
		if got.State != want.State || got.Kind != want.Kind || got.Replayed {
			t.Errorf("%s: got %+v, one after the other %+v", id, got, want)
		}
		delete(deeds, id)
	}
	if len(deeds) > 0 || refused == 0 || refused == len(told) {
		t.Errorf("%d of %d refused; %d were never written down", refused, len(told), len(deeds))
	}
	s.sameBooks(t, m)
}

// id is the key of an order or of a change.
func (d op) id() string { return cmp.Or(d.Request.Key, d.Adjustment.ID) }

// sameBooks holds the books against the model's.
func (s *env) sameBooks(t *testing.T, m *model) {
	t.Helper()
	got, err := s.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(m.books(), got); diff != "" {
		t.Errorf("the books (-one after the other +at once):\n%s", diff)
	}
	s.balanced(t)
}

// inOrderOfCommits are the orders and changes that were written down. A transaction has its last entry when it has all its
// locks, and so before anybody who waits for one of them has his. Of those in one transaction the refused ones come last: there is
// no less for them then than when they were refused.
func (s *env) inOrderOfCommits(t *testing.T, told map[string]reply) (ids []string) {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(), "SELECT seq, tx, name FROM suite_entry ORDER BY seq")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	last, of := map[string]int64{}, map[string]string{}
	for rows.Next() {
		var seq int64
		var tx, name string
		if err := rows.Scan(&seq, &tx, &name); err != nil {
			t.Fatal(err)
		}
		if last[tx] = seq; name != "" {
			of[name] = tx
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for name := range of {
		ids = append(ids, name)
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(last[of[a]], last[of[b]]), cmp.Compare(told[a].Kind, told[b].Kind), cmp.Compare(a, b))
	})
	return ids
}

// doByClerks runs all ops, a few at a time, and returns the answer to each.
func (s *env) doByClerks(t *testing.T, store *inventory.Store, deeds []op) []reply {
	t.Helper()
	replies := make([]reply, len(deeds))
	next := make(chan int)
	var clerks sync.WaitGroup
	for range invoiceClerks {
		clerks.Go(func() {
			for i := range next {
				replies[i] = deeds[i].do(t.Context(), store)
			}
		})
	}
	for i := range deeds {
		next <- i
	}
	close(next)
	clerks.Wait()
	return replies
}

// theOrderOfCommitsMatters is the control: in the order in which they were sent, others would have been refused.
func theOrderOfCommitsMatters(t *testing.T, s *env) {
	stock, deeds := invoices(t, "")
	outcome := func(seed uint64) (kinds []string) {
		m := newModel(true)
		for _, d := range stock {
			m.do(d)
		}
		told := make(map[string]string)
		for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(deeds)) {
			told[deeds[i].id()] = m.do(deeds[i]).Kind
		}
		for _, d := range deeds {
			kinds = append(kinds, told[d.id()])
		}
		return kinds
	}
	if slices.Equal(outcome(1), outcome(2)) {
		t.Error("whatever the order, the same are refused: the test of scarce invoices could not fail")
	}
}
