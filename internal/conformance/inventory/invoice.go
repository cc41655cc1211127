package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/orders"
	"github.com/dblock-go/dblock/inventory"
)

// orderFile reads a morning's real trade.
func orderFile(t *testing.T) orders.File {
	t.Helper()
	f := suite.Must(os.Open("../../internal/orders/testdata/online_retail_2010-12-01.csv"))(t) // as seen from a driver
	defer func() { _ = f.Close() }()
	file := suite.Must(orders.Read(f))(t)
	require.Len(t, file.Lines, 999)
	require.Empty(t, file.Bad)
	return file
}

// replaysARealOrderFile sends it twice, with half the stock that it takes.
func replaysARealOrderFile(t *testing.T, s *env) {
	lines := orderFile(t).Lines
	s.o.RecordRefusals = true
	store := s.open(t, s.o)
	for _, a := range orders.HalfStock(lines) {
		require.NoError(t, suite.Second(store.Restock(t.Context(), a)))
	}
	replay := func() orders.Report {
		return suite.Must(orders.Replay(t.Context(), store, lines, 64, func() {}))(t)
	}
	first := replay()
	assert.True(t, first.Seen == 0 && first.Accepted > 0 && first.SoldOut > 0 && first.Returned > 0, "%+v", first)
	assert.Equal(t, len(lines), first.Accepted+first.SoldOut+first.Returned)
	before := suite.Must(store.Audit(t.Context()))(t)
	assert.Equal(t, orders.Report{Seen: len(lines)}, replay(), "the second time")
	assert.Equal(t, before, suite.Must(store.Audit(t.Context()))(t), "the second time")
	s.sound(t)
}

// invoices are the order file as ops: an invoice is a cart, and a return a change of stock. A name
// lets a file be sold several times.
func invoices(t *testing.T, name string) (stock, ops []op) {
	t.Helper()
	lines, at := orderFile(t).Lines, map[string]int{} // by invoice
	for i, l := range lines {
		l.SKU = name + l.SKU
		lines[i] = l
		invoice, _, _ := strings.Cut(name+l.Key, "/")
		if l.Qty < 0 {
			ops = append(ops, restocks(inventory.Adjustment{ID: name + l.Key, SKU: l.SKU, Delta: -l.Qty}))
			continue
		}
		if _, begun := at[invoice]; !begun {
			at[invoice] = len(ops)
			ops = append(ops, op{What: toCart, Request: inventory.Request{Key: invoice, Buyer: l.Buyer}})
		}
		d := &ops[at[invoice]]
		d.Lines = append(d.Lines, inventory.Line{SKU: l.SKU, Qty: l.Qty})
	}
	for _, a := range orders.HalfStock(lines) {
		stock = append(stock, restocks(a))
	}
	return stock, ops
}

// sellsInvoices sells them three times, in different orders, with a multiple of half the stock.
// The replies and the books are those of the model in the order of commits.
func (s *env) sellsInvoices(t *testing.T, times int64) (refused, all int) {
	t.Helper()
	s.keepsBooks(t)
	s.o.RecordRefusals = true
	store := s.open(t, s.o)
	ops, replies := map[string]op{}, map[string]reply{}
	for seed := range uint64(3) {
		stock, of := invoices(t, fmt.Sprintf("seed %d, ", seed))
		for i := range stock {
			stock[i].Adjustment.Delta *= times
		}
		shuffle(of, seed)
		for _, some := range [][]op{stock, of} {
			s.doAtOnce(t, []*inventory.Store{store}, some, func(d op, r reply) { ops[d.id()], replies[d.id()] = d, r })
		}
	}
	m, ids := newModel(true), s.inOrderOfCommits(t, replies)
	assert.Len(t, ids, len(ops), "not all ops are in the books")
	for _, id := range ids {
		got, want := replies[id], m.do(ops[id])
		got.Detail, want.Detail = "", "" // how many were left depends on when it was read
		assert.Equal(t, want, got, id)
		if got.Kind == isSoldOut {
			refused++
		}
	}
	assert.Equal(t, m.books(), suite.Must(s.Audit(t.Context()))(t))
	s.balanced(t)
	return refused, len(ids)
}

func sellsRealInvoices(t *testing.T, s *env) {
	refused, _ := s.sellsInvoices(t, 3)
	assert.Zero(t, refused, "refused though there is ample stock")
}

func sellsScarceInvoices(t *testing.T, s *env) {
	refused, all := s.sellsInvoices(t, 1)
	assert.True(t, 0 < refused && refused < all, "%d of %d are refused", refused, all)
}

// theOrderOfCommitsMatters is the control: in another order, other invoices are refused.
func theOrderOfCommitsMatters(t *testing.T, s *env) {
	refused := func(seed uint64) (ids []string) {
		m := newModel(true)
		stock, ops := invoices(t, "")
		shuffle(ops, seed)
		for _, d := range slices.Concat(stock, ops) {
			if m.do(d).Kind != "" {
				ids = append(ids, d.id())
			}
		}
		slices.Sort(ids)
		return ids
	}
	assert.NotEqual(t, refused(1), refused(2), "the test of scarce invoices cannot fail")
}

func shuffle(ops []op, seed uint64) {
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
}

// id is the key of an order or of a change.
func (d op) id() string { return cmp.Or(d.Request.Key, d.Adjustment.ID) }

// inOrderOfCommits are the ids of the orders and changes in suite_entry. A transaction makes its
// last entry with all its locks, and so before any transaction that waits for one of them. Of one
// transaction the refused ones come last: less is left for them than when they were refused.
func (s *env) inOrderOfCommits(t *testing.T, replies map[string]reply) []string {
	t.Helper()
	last, txOf := map[string]int{}, map[string]string{}
	for seq, row := range s.query(t, "SELECT tx, name FROM suite_entry ORDER BY seq") {
		tx, id := row[0], row[1]
		if last[tx] = seq; id != "" {
			txOf[id] = tx
		}
	}
	return slices.SortedFunc(maps.Keys(txOf), func(a, b string) int {
		inTx := cmp.Or(cmp.Compare(replies[a].Kind, replies[b].Kind), cmp.Compare(a, b))
		return cmp.Or(cmp.Compare(last[txOf[a]], last[txOf[b]]), inTx)
	})
}
