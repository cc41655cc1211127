package inventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

func answersARepeatedKeyAsBefore(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	want := inventory.Reservation{Key: "k", SKU: "sale", Buyer: "buyer of k", Qty: 3, State: inventory.Sold}
	for range 2 {
		assert.Equal(t, want, suite.Must(s.Reserve(t.Context(), order("k", "sale", 3)))(t))
		want.Replayed = true
	}
	s.wantsBooks(t, "sale", 7, 0, 3)
}

func sellsAKeyOnceHoweverOftenSent(t *testing.T, s *env) {
	const keys = 50
	s.stock(t, "sale", 1000)
	var reqs []inventory.Request
	for i := range s.size(400) {
		reqs = append(reqs, order(fmt.Sprintf("order-%d", i%keys), "sale", 2))
	}
	got := inEach(t.Context(), reqs, s.Store, s.open(t, s.o))
	assert.Equal(t, map[string]int{"sold": keys, "replayed": 2*len(reqs) - keys}, outcomes(got))
	s.wantsBooks(t, "sale", 1000-2*keys, 0, 2*keys)
	s.sound(t)
}

func refusesAKeyWithOtherContents(t *testing.T, s *env) {
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
	var reqs []inventory.Request // the same key for two SKUs at once
	for i := range 40 {
		reqs = append(reqs, inventory.Request{Key: "race", SKU: []string{"sale", "other"}[i%2], Qty: 1})
	}
	assert.Equal(t, map[string]int{"sold": 1, "replayed": 19, isReused: 20}, outcomes(crowd(t.Context(), s.Store, reqs)))
	s.sound(t)
}

func recordsRefusalsWhenAsked(t *testing.T, s *env) {
	o := s.o
	o.RecordRefusals = true
	store := s.open(t, o)
	s.stock(t, "sale", 1)
	reserve := func(store *inventory.Store, key string) reply {
		return op{What: toReserve, Request: order(key, "sale", 2)}.do(t.Context(), store)
	}
	refused := reply{State: inventory.Refused, SKU: "sale", Qty: 2, Kind: isSoldOut, Detail: "sale, left 1"}
	assert.Equal(t, refused, reserve(s.Store, "plain"))
	assert.Equal(t, refused, reserve(store, "recorded"))
	assert.EqualValues(t, 2, refusal(s.Store, order("plain", "sale", 2)).Wanted)
	s.restock(t, "more", "sale", 100)
	refused.Replayed, refused.Detail = true, "as before"
	assert.Equal(t, refused, reserve(store, "recorded"))
	assert.Equal(t, reply{State: inventory.Sold, SKU: "sale", Qty: 2}, reserve(s.Store, "plain"))
	s.wantsBooks(t, "sale", 99, 0, 2)
	s.sound(t)
}

func restocksOnce(t *testing.T, s *env) {
	change := func(id, sku string, delta int64) op {
		return restocks(inventory.Adjustment{ID: id, SKU: sku, Delta: delta})
	}
	s.wants(t, change("delivery", "sale", 10), reply{})
	s.wants(t, change("delivery", "sale", 10), reply{Replayed: true})
	s.wants(t, change("delivery", "sale", 10), reply{Replayed: true})
	s.wants(t, change("delivery", "sale", 11), reply{Kind: isReused})
	s.wants(t, change("delivery", "other", 10), reply{Kind: isReused})
	s.wants(t, change("write-off", "sale", -4), reply{})
	s.wants(t, change("too much", "sale", -7), reply{Kind: isSoldOut, Detail: left("sale", 6)})
	var out *inventory.SoldOutError
	require.ErrorAs(t, restock(t, s.Store, "too much", "sale", -7), &out)
	assert.EqualValues(t, 7, out.Wanted)
	s.wants(t, change("write-off of nothing", "nonsense", -1), reply{Kind: isUnknownSKU, Detail: "nonsense"})
	s.wants(t, change("known, but empty", "empty", 0), reply{})
	s.wants(t, op{What: toReserve, Request: order("k", "empty", 1)},
		reply{State: inventory.Refused, SKU: "empty", Qty: 1, Kind: isSoldOut, Detail: left("empty", 0)})
	suite.Crowd(40, func(i int) { // the first changes of a new SKU, each of them twice
		assert.NoError(t, restock(t, s.Store, fmt.Sprintf("race-%d", i%20), "race", 1))
	})
	for sku, units := range map[string]int64{"sale": 6, "empty": 0, "race": 20} {
		s.wantsBooks(t, sku, units, 0, 0)
	}
	s.sound(t)
}

func findsWhatIsRecorded(t *testing.T, s *env) {
	const sku = "Größe ' \" \\ ; --"
	s.stock(t, sku, 10)
	odd := inventory.Request{Key: "Ünïcode 🔒 ' \" \\ ; -- ? $1 %", SKU: sku, Buyer: "O'Brien\n\t", Qty: 10}
	s.sells(t, odd)
	want := inventory.Reservation{Key: odd.Key, SKU: odd.SKU, Buyer: odd.Buyer, Qty: 10, State: inventory.Sold}
	assert.Equal(t, want, suite.Must(s.Lookup(t.Context(), odd.Key))(t))
	_, err := s.Lookup(t.Context(), strings.ToUpper(odd.Key))
	assert.ErrorIs(t, err, inventory.ErrNotFound)
	_, err = s.Reserve(t.Context(), order("k", "GRÖSSE", 1))
	assert.ErrorIs(t, err, inventory.ErrUnknownSKU)
	longest := inventory.Request{
		Key: strings.Repeat("k", 255), SKU: strings.Repeat("s", 255), Buyer: strings.Repeat("b", 255), Qty: 1,
	}
	s.stock(t, longest.SKU[:200], 1) // its adjustment's ID is longer than the SKU
	s.restock(t, "longest", longest.SKU, inventory.MaxQty)
	s.sells(t, longest)
	s.sound(t)
}

func auditFindsTampering(t *testing.T, s *env) {
	s.stock(t, "sale", 10)
	s.stock(t, "other", 5)
	require.NoError(t, suite.Second(s.Reserve(t.Context(), order("k", "sale", 4))))
	s.sound(t)
	s.exec(t, "UPDATE dblock_stock SET available = available + 2 WHERE sku = 'sale' AND bucket = 0")
	assert.EqualValues(t, -2, s.balance(t, "sale").Drift(), "two units are added")
	s.exec(t, "DELETE FROM dblock_reservation WHERE sku = 'sale'")
	assert.EqualValues(t, 2, s.balance(t, "sale").Drift(), "an order for four is deleted, too")
	assert.Zero(t, s.balance(t, "other").Drift())
}
