package inventory

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/orders"
	"github.com/dblock-go/dblock/internal/sale"
	"github.com/dblock-go/dblock/inventory"
)

// SellsExactlyItsStock has crowds of buyers order one unit each, once: as many as there are units,
// and more.
func (patientTests) SellsExactlyItsStock(t *testing.T, s *env) {
	for more, units := range map[int]int{0: s.size(1600), 9: s.size(800)} {
		crowd := sale.Sale{Name: fmt.Sprint("sale ", more), Buyers: units * (more + 1), Stock: int64(units), Seed: uint64(more)}
		r := suite.Must(crowd.Run(t.Context(), s.Store, func() {}))(t)
		assert.NoError(t, r.Check(true))
		assert.Equal(t, []int64{int64(units), int64(units), int64(more * units)}, []int64{r.Sold, r.Balance.Sold, r.SoldOut})
		s.sound(t)
	}
}

func (tests) ASoldOutSKUDoesNotStopTheRest(t *testing.T, s *env) {
	const each = 125
	reqs := ordersOf("unknown", each, "unknown")
	for sku, units := range map[string]int64{"plenty": 1000, "none": 0, "few": 5} {
		s.stock(t, sku, units)
		reqs = append(reqs, ordersOf(sku, each, sku)...)
	}
	rand.Shuffle(len(reqs), func(i, j int) { reqs[i], reqs[j] = reqs[j], reqs[i] })
	want := map[string]int{"sold": each + 5, isSoldOut: 2*each - 5, isUnknownSKU: each}
	assert.Equal(t, want, outcomes(crowd(t.Context(), s.Store, reqs)))
	s.wantsBooks(t, "plenty", 1000-each, 0, each)
	s.wantsBooks(t, "few", 0, 0, 5)
	s.sound(t)
}

// RefusesOrdersOnceClosed closes a Store amid a sale. When Close returns, the books have each order
// that was confirmed, and no other.
func (tests) RefusesOrdersOnceClosed(t *testing.T, s *env) {
	s.stock(t, "sale", 2000)
	store, ctx := s.open(t, s.o), t.Context()
	orders := suite.Begin(func() ([]requestResult, error) { return crowd(ctx, store, ordersFor(1000, "sale")), nil })
	assert.NoError(t, store.Close(ctx))
	assert.NoError(t, store.Close(ctx), "the second time")
	books := s.balance(t, "sale")
	sold := int64(0)
	for _, a := range suite.Must(orders())(t) {
		if a.err == nil {
			sold++
		} else {
			assert.ErrorIs(t, a.err, dblock.ErrClosed, a.req.Key)
		}
	}
	assert.Equal(t, sold, books.Sold)
	for name, err := range map[string]error{
		"Reserve":    suite.Second(store.Reserve(ctx, order("late", "sale", 1))),
		"Confirm":    suite.Second(store.Confirm(ctx, "late")),
		"Cancel":     suite.Second(store.Cancel(ctx, "late")),
		"Restock":    restock(t, store, "late", "sale", 1),
		"Sweep":      suite.Second(store.Sweep(ctx, 1)),
		"RunSweeper": store.RunSweeper(ctx, time.Second),
		"Lookup":     suite.Second(store.Lookup(ctx, "late")),
		"Audit":      suite.Second(store.Audit(ctx, "sale")),
		"Repair":     suite.Second(store.Repair(ctx, "sale")),
	} {
		assert.ErrorIs(t, err, dblock.ErrClosed, name)
	}
	s.sound(t)
}

func (tests) AnswersARepeatedKeyAsBefore(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	want := inventory.Reservation{Key: "k", SKU: "sale", Buyer: "buyer of k", Qty: 3, State: inventory.ReservationSold}
	for range 2 {
		assert.Equal(t, want, suite.Must(s.Reserve(t.Context(), order("k", "sale", 3)))(t))
		want.Replayed = true
	}
	s.wantsBooks(t, "sale", 7, 0, 3)
}

func (tests) RefusesAKeyWithOtherContents(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	s.stock(t, "other", 10)
	s.sells(t, order("k", "sale", 1))
	for name, r := range map[string]inventory.Request{
		"other SKU":      {Key: "k", SKU: "other", Buyer: "buyer of k", Qty: 1},
		"unknown SKU":    {Key: "k", SKU: "nonsense", Buyer: "buyer of k", Qty: 1},
		"other quantity": {Key: "k", SKU: "sale", Buyer: "buyer of k", Qty: 2},
		"too many":       {Key: "k", SKU: "sale", Buyer: "buyer of k", Qty: 2000},
		"other buyer":    {Key: "k", SKU: "sale", Buyer: "ann", Qty: 1},
		"no buyer":       {Key: "k", SKU: "sale", Qty: 1},
	} {
		_, err := s.Reserve(t.Context(), r)
		assert.ErrorIs(t, err, inventory.ErrKeyReused, name)
		assert.ErrorAs(t, err, new(*inventory.KeyReusedError), name)
	}
	reqs := ordersFor(40, "sale") // the same key for two SKUs at once
	for i := range reqs {
		reqs[i].Key, reqs[i].SKU, reqs[i].Buyer = "race", []string{"sale", "other"}[i%2], ""
	}
	want := map[string]int{"sold": 1, "replayed": 19, isReused: 20}
	assert.Equal(t, want, outcomes(crowd(t.Context(), s.Store, reqs)))
	s.sound(t)
}

func (tests) RecordsRefusalsWhenAsked(t *testing.T, s *env) {
	o := s.o
	o.RecordRefusals = true
	store := s.open(t, o)
	s.stock(t, "sale", 1)
	plain := op{What: toReserve, Request: order("plain", "sale", 2)}
	recorded := op{What: toReserve, Request: order("recorded", "sale", 2)}
	refused := reply{State: inventory.ReservationRefused, SKU: "sale", Qty: 2, Kind: isSoldOut, Detail: left("sale", 1)}
	s.wants(t, plain, refused)
	assert.Equal(t, refused, recorded.do(t.Context(), store))
	assert.EqualValues(t, 2, refusal(s.Store, plain.Request).Wanted)
	s.restock(t, "more", "sale", 100)
	refused.Replayed, refused.Detail = true, "as before"
	assert.Equal(t, refused, recorded.do(t.Context(), store))
	s.wants(t, plain, reply{State: inventory.ReservationSold, SKU: "sale", Qty: 2})
	s.wantsBooks(t, "sale", 99, 0, 2)
	s.sound(t)
}

func (mergeTests) RestocksOnce(t *testing.T, s *env) {
	for _, c := range []struct {
		id, sku string
		delta   int64
		want    reply
	}{
		{"delivery", "sale", 10, reply{}},
		{"delivery", "sale", 10, reply{Replayed: true}},
		{"delivery", "sale", 10, reply{Replayed: true}},
		{"delivery", "sale", 11, reply{Kind: isReused}},
		{"delivery", "other", 10, reply{Kind: isReused}},
		{"write-off", "sale", -4, reply{}},
		{"too much", "sale", -7, reply{Kind: isSoldOut, Detail: left("sale", 6)}},
		{"write-off of nothing", "nonsense", -1, reply{Kind: isUnknownSKU, Detail: "nonsense"}},
		{"known, but empty", "empty", 0, reply{}},
	} {
		s.wants(t, restocks(inventory.Adjustment{ID: c.id, SKU: c.sku, Delta: c.delta}), c.want)
	}
	out := suite.As[*inventory.SoldOutError](t, restock(t, s.Store, "too much", "sale", -7))
	assert.EqualValues(t, 7, out.Wanted)
	gets(t, s.Store, order("k", "empty", 1), isSoldOut)
	suite.Crowd(40, func(i int) { // the first changes of a new SKU, each of them twice
		assert.NoError(t, restock(t, s.Store, fmt.Sprintf("race-%d", i%20), "race", 1))
	})
	for sku, units := range map[string]int64{"sale": 6, "empty": 0, "race": 20} {
		s.wantsBooks(t, sku, units, 0, 0)
	}
	s.sound(t)
}

func (tests) FindsWhatIsRecorded(t *testing.T, s *env) {
	const sku = "Größe ' \" \\ ; --"
	s.stock(t, sku, 10)
	odd := inventory.Request{Key: "Ünïcode 🔒 ' \" \\ ; -- ? $1 %", SKU: sku, Buyer: "O'Brien\n\t", Qty: 10}
	s.sells(t, odd)
	want := inventory.Reservation{Key: odd.Key, SKU: odd.SKU, Buyer: odd.Buyer, Qty: 10, State: inventory.ReservationSold}
	assert.Equal(t, want, suite.Must(s.Lookup(t.Context(), odd.Key))(t))
	s.wants(t, onKey(toLookUp, strings.ToUpper(odd.Key)), reply{Kind: isNotFound})
	gets(t, s.Store, order("k", "GRÖSSE", 1), isUnknownSKU)
	key, sku255, buyer := strings.Repeat("k", 255), strings.Repeat("s", 255), strings.Repeat("b", 255)
	s.stock(t, sku255[:200], 1) // its adjustment's ID is longer than the SKU
	s.restock(t, "longest", sku255, inventory.MaxQty)
	s.sells(t, inventory.Request{Key: key, SKU: sku255, Buyer: buyer, Qty: 1})
	s.sound(t)
}

func (mergeTests) AuditFindsTampering(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	s.stock(t, "other", 5)
	s.sells(t, order("k", "sale", 4))
	s.sound(t)
	s.Exec(t, "UPDATE dblock_stock SET available = available + 2 WHERE sku = 'sale' AND bucket = 0")
	assert.EqualValues(t, -2, s.balance(t, "sale").Drift(), "two units are added")
	s.Exec(t, "DELETE FROM dblock_reservation WHERE sku = 'sale'")
	assert.EqualValues(t, 2, s.balance(t, "sale").Drift(), "an order for four is deleted, too")
	assert.Zero(t, s.balance(t, "other").Drift())
}

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

// ReplaysARealOrderFile sends it twice, with half the stock that it takes.
func (tests) ReplaysARealOrderFile(t *testing.T, s *env) {
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
