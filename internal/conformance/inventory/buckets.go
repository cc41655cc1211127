package inventory

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// wantBuckets fails unless the buckets of an SKU have these units.
func (s *env) wantBuckets(t *testing.T, sku string, want ...int64) {
	t.Helper()
	var rows [][]string
	for i, n := range want {
		rows = append(rows, []string{fmt.Sprint(i), fmt.Sprint(n)})
	}
	assert.Equal(t, rows, s.query(t, "SELECT bucket, available FROM dblock_stock WHERE sku = '"+sku+"' ORDER BY bucket"))
}

// sellsAcrossBuckets sells an SKU whose stock is in 8 buckets to the last unit, also in quantities
// that no bucket has. A refusal is right for all buckets together.
func sellsAcrossBuckets(t *testing.T, s *env) {
	s.o.Buckets = 8
	store := s.open(t, s.o)
	require.NoError(t, restock(t, store, "stock", "sale", 400))
	s.wantBuckets(t, "sale", 50, 50, 50, 50, 50, 50, 50, 50)
	assert.NoError(t, suite.Second(store.Reserve(t.Context(), order("of three buckets", "sale", 120))))
	_, err := store.Reserve(t.Context(), order("too many", "sale", 281))
	assert.EqualValues(t, 280, suite.As[*inventory.SoldOutError](t, err).Available)
	random := rand.New(rand.NewPCG(5, 0))
	var reqs []inventory.Request
	for i := range 90 {
		reqs = append(reqs, order(fmt.Sprintf("order-%d", i), "sale", 1+random.Int64N(60)>>random.Int64N(6)))
	}
	sold := int64(120)
	for _, a := range crowd(t.Context(), store, reqs) {
		if a.err == nil {
			sold += a.req.Qty
			continue
		}
		assert.Less(t, suite.As[*inventory.SoldOutError](t, a.err).Available, a.req.Qty, a.req.Key)
	}
	for n := s.balance(t, "sale").Available; n > 0; n-- {
		s.sells(t, order(fmt.Sprintf("last-%d", n), "sale", 1))
		sold++
	}
	assert.EqualValues(t, 400, sold)
	s.wantsBooks(t, "sale", 0, 0, 400)
	s.wantBuckets(t, "sale", 0, 0, 0, 0, 0, 0, 0, 0)
	s.sound(t)
}

// spreadsWhatComesIn restocks with several numbers of buckets, each delivery twice.
func spreadsWhatComesIn(t *testing.T, s *env) {
	stores := map[int]*inventory.Store{}
	for _, n := range []int{1, 4, 6} {
		s.o.Buckets = n
		stores[n] = s.open(t, s.o)
	}
	for i, c := range []struct {
		buckets int
		delta   int64
		want    []int64
	}{
		{4, 0, []int64{0, 0, 0, 0}},
		{4, 10, []int64{3, 3, 2, 2}},
		{4, 1, []int64{3, 3, 3, 2}},
		{4, -4, []int64{0, 2, 3, 2}},
		{1, 2, []int64{2, 2, 3, 2}},
		{1, -5, []int64{0, 0, 2, 2}}, // more than bucket 0 has
		{6, 8, []int64{2, 2, 3, 3, 1, 1}},
		{6, 0, []int64{2, 2, 3, 3, 1, 1}},
		{4, 6, []int64{3, 3, 4, 4, 2, 2}}, // over all that exist
		{1, -18, []int64{0, 0, 0, 0, 0, 0}},
		{4, 7, []int64{2, 1, 1, 1, 1, 1}},
	} {
		a := inventory.Adjustment{ID: fmt.Sprint("delivery-", i), SKU: "sale", Delta: c.delta}
		for _, again := range []bool{false, true} {
			assert.Equal(t, again, suite.Must(stores[c.buckets].Restock(t.Context(), a))(t), "%+d", c.delta)
			s.wantBuckets(t, "sale", c.want...)
		}
	}
	for n, store := range stores {
		err := restock(t, store, fmt.Sprint("8 of 7 ", n), "sale", -8)
		assert.EqualValues(t, 7, suite.As[*inventory.SoldOutError](t, err).Available)
	}
	suite.Crowd(3*10, func(i int) { // all make the rows of the same SKU
		assert.NoError(t, restock(t, stores[[]int{1, 4, 6}[i%3]], fmt.Sprint("race-", i), "race", 5))
	})
	assert.EqualValues(t, 150, s.balance(t, "race").Available)
	assert.EqualValues(t, 6, s.Count(t, "SELECT count(*) FROM dblock_stock WHERE sku = 'race'"))
	s.sound(t)
}

// passesOverLockedBuckets has a batch of several SKUs meet an SKU of which a bucket is locked: it
// passes over that, sells the others, and refuses no order for it.
func passesOverLockedBuckets(t *testing.T, e Inventory) {
	o := inventory.Options{Buckets: 4, MaxInFlight: 1, Timeout: time.Minute} // orders queue behind one that waits
	s := e.env(t, o)
	for sku, units := range map[string]int64{"gate": 4, "free": 100, "few": 4, "none": 0} {
		s.stock(t, sku, units)
	}
	// After a refusal the batch looks up what is recorded, and so can refuse.
	soldOut := func(err error) { t.Helper(); assert.ErrorIs(t, err, inventory.ErrSoldOut) }
	soldOut(suite.Second(s.Reserve(t.Context(), order("before", "none", 1))))
	openGate := s.lockSKUs(t, []string{"gate"})
	release := s.lockRows(t, "SELECT 1 FROM dblock_stock WHERE sku = 'few' AND bucket = 3 FOR UPDATE")
	ends := map[string]func() (inventory.Reservation, error){}
	for _, key := range []string{"gate", "free", "none", "few-1", "few-2", "few-3", "few-4"} {
		sku, _, _ := strings.Cut(key, "-")
		w := newWaiter(t.Context())
		ends[key] = suite.Begin(func() (inventory.Reservation, error) { return s.Reserve(w, order(key, sku, 1)) })
		<-w.waits
	}
	openGate()
	for _, key := range []string{"gate", "free", "few-1", "few-2", "few-3"} {
		assert.NoError(t, suite.Second(ends[key]()), key)
	}
	soldOut(suite.Second(ends["none"]()))
	release()
	assert.NoError(t, suite.Second(ends["few-4"]()))
	soldOut(suite.Second(s.Reserve(t.Context(), order("few-5", "few", 1))))
	s.sound(t)
}
