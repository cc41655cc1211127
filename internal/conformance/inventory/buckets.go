package inventory

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/dblock-go/dblock/inventory"
)

// buckets returns what is in each of an SKU's, in order.
func (s *env) buckets(t *testing.T, sku string) (left []int64) {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(),
		fmt.Sprintf("SELECT bucket, available FROM dblock_stock WHERE sku = '%s' ORDER BY bucket", sku))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var number int
		var n int64
		if err := rows.Scan(&number, &n); err != nil {
			t.Fatal(err)
		}
		if number != len(left) {
			t.Errorf("bucket %d follows bucket %d", number, len(left)-1)
		}
		left = append(left, n)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return left
}

func (s *env) wantBuckets(t *testing.T, sku string, want ...int64) {
	t.Helper()
	if got := s.buckets(t, sku); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", sku, got, want)
	}
}

// sellsAcrossBuckets sells an SKU whose stock is in 8 buckets to the last unit, in quantities that no
// bucket has, too. A refusal is proved by all buckets together.
func sellsAcrossBuckets(t *testing.T, s *env) {
	s.o.Buckets = 8
	store := s.open(t, s.o)
	if _, err := store.Restock(t.Context(), inventory.Adjustment{ID: "stock", SKU: "sale", Delta: 400}); err != nil {
		t.Fatal(err)
	}
	s.wantBuckets(t, "sale", 50, 50, 50, 50, 50, 50, 50, 50)
	if _, err := store.Reserve(t.Context(), order("of three buckets", "sale", 120)); err != nil {
		t.Error(err)
	}
	var out *inventory.SoldOutError
	if _, err := store.Reserve(t.Context(), order("too many", "sale", 281)); !errors.As(err, &out) || out.Available != 280 {
		t.Errorf("got %v", err)
	}
	random := rand.New(rand.NewPCG(5, 0))
	var reqs []inventory.Request
	for i := range 90 {
		reqs = append(reqs, order(fmt.Sprintf("order-%d", i), "sale", 1+random.Int64N(60)>>random.Int64N(6)))
	}
	sold := int64(120)
	for _, a := range crowd(t.Context(), store, reqs) {
		switch {
		case a.err == nil:
			sold += a.req.Qty
		case !errors.As(a.err, &out):
			t.Errorf("%s: %v", a.req.Key, a.err)
		case out.Available >= a.req.Qty:
			t.Errorf("%s was refused %d while %d were left", a.req.Key, a.req.Qty, out.Available)
		}
	}
	for n := s.balance(t, "sale").Available; n > 0; n-- {
		s.sells(t, order(fmt.Sprintf("last-%d", n), "sale", 1))
		sold++
	}
	if b := s.balance(t, "sale"); sold != 400 || b.Sold != 400 || b.Available != 0 {
		t.Errorf("callers were told of %d units: %+v", sold, b)
	}
	s.wantBuckets(t, "sale", 0, 0, 0, 0, 0, 0, 0, 0)
	s.sound(t)
}

// spreadsWhatComesIn restocks with several numbers of buckets.
func spreadsWhatComesIn(t *testing.T, s *env) {
	stores := map[int]*inventory.Store{}
	for _, n := range []int{1, 4, 6} {
		s.o.Buckets = n
		stores[n] = s.open(t, s.o)
	}
	id := 0
	restock := func(buckets int, delta int64) error {
		id++
		a := inventory.Adjustment{ID: fmt.Sprint("delivery-", id), SKU: "sale", Delta: delta}
		_, err := stores[buckets].Restock(t.Context(), a)
		if replayed, again := stores[buckets].Restock(t.Context(), a); err == nil && (again != nil || !replayed) {
			t.Errorf("sent again: %v, %v", replayed, again)
		}
		return err
	}
	for _, c := range []struct {
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
		{4, 6, []int64{3, 3, 4, 4, 2, 2}}, // over all that there are
		{1, -18, []int64{0, 0, 0, 0, 0, 0}},
	} {
		if err := restock(c.buckets, c.delta); err != nil {
			t.Errorf("%+d: %v", c.delta, err)
		}
		s.wantBuckets(t, "sale", c.want...)
	}
	var out *inventory.SoldOutError
	if err := restock(4, 7); err != nil {
		t.Error(err)
	}
	for n := range stores {
		if err := restock(n, -8); !errors.As(err, &out) || out.Available != 7 {
			t.Errorf("8 of 7: %v", err)
		}
	}
	s.restocksANewSKUAtOnce(t, stores)
	s.sound(t)
}

// restocksANewSKUAtOnce has Stores with different numbers of buckets make the rows of the same SKU.
func (s *env) restocksANewSKUAtOnce(t *testing.T, stores map[int]*inventory.Store) {
	var all sync.WaitGroup
	for n, store := range stores {
		for i := range 10 {
			all.Go(func() {
				a := inventory.Adjustment{ID: fmt.Sprintf("race-%d-%d", n, i), SKU: "race", Delta: 5}
				if _, err := store.Restock(t.Context(), a); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if b, rows := s.balance(t, "race"), s.buckets(t, "race"); b.Available != int64(50*len(stores)) || len(rows) != 6 {
		t.Errorf("%+v in %v", b, rows)
	}
}

// passesOverLockedBuckets has a batch of several SKUs meet an SKU of which somebody holds a bucket.
// It passes over that, sells the others, and refuses nobody for it.
func passesOverLockedBuckets(t *testing.T, e Inventory) {
	s := e.env(t, inventory.Options{Buckets: 4, MaxInFlight: 1}) // so that whatever comes while one waits queues
	for sku, units := range map[string]int64{"gate": 4, "free": 100, "few": 4, "none": 0} {
		s.stock(t, sku, units)
	}
	// A shortage that is known makes the batch look up what is recorded, and so able to refuse.
	if _, err := s.Reserve(t.Context(), order("before", "none", 1)); !errors.Is(err, inventory.ErrSoldOut) {
		t.Fatal(err)
	}
	lock := func(where string) (letGo func()) {
		tx, err := s.db.BeginTx(t.Context(), nil)
		if err == nil {
			_, err = tx.ExecContext(t.Context(), "SELECT 1 FROM dblock_stock WHERE "+where+" FOR UPDATE")
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
		}
	}
	openGate, letGo := lock("sku = 'gate'"), lock("sku = 'few' AND bucket = 3")
	answers := map[string]chan error{}
	for _, r := range []inventory.Request{
		order("gate", "gate", 1), order("free", "free", 1), order("none", "none", 1),
		order("few-1", "few", 1), order("few-2", "few", 1), order("few-3", "few", 1), order("few-4", "few", 1),
	} {
		w, answer := newWaiter(t.Context()), make(chan error, 1)
		go func() {
			_, err := s.Reserve(w, r)
			answer <- err
		}()
		<-w.waits
		answers[r.Key] = answer
	}
	openGate()
	for _, key := range []string{"gate", "free", "few-1", "few-2", "few-3"} {
		if err := <-answers[key]; err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if err := <-answers["none"]; !errors.Is(err, inventory.ErrSoldOut) {
		t.Errorf("none: %v", err)
	}
	letGo()
	if err := <-answers["few-4"]; err != nil {
		t.Errorf("the last of four, which nobody had bought: %v", err)
	}
	if _, err := s.Reserve(t.Context(), order("few-5", "few", 1)); !errors.Is(err, inventory.ErrSoldOut) {
		t.Errorf("the fifth of four: %v", err)
	}
	s.sound(t)
}
