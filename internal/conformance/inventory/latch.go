package inventory

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// latched opens a Store that refuses from memory what was sold out a moment ago: for longer than
// its test lasts.
func (s *env) latched(t *testing.T) *inventory.Store {
	t.Helper()
	return s.open(t, inventory.Options{Latch: 10 * time.Second, Timeout: time.Minute})
}

// refusal is the refusal of an order that is sold out; nil: it got another answer.
func refusal(store *inventory.Store, r inventory.Request) *inventory.SoldOutError {
	_, err := store.Reserve(context.Background(), r)
	var out *inventory.SoldOutError
	if !errors.As(err, &out) {
		return nil
	}
	return out
}

// isLatched waits until a Store refuses orders of a sold-out SKU from memory.
func isLatched(t *testing.T, store *inventory.Store, sku string) {
	t.Helper()
	n := 0
	suite.Until(t, "it refuses from memory", func() bool {
		n++
		out := refusal(store, order(fmt.Sprintf("latch %s %d", sku, n), sku, 1))
		require.NotNil(t, out, "an order of what is sold out")
		return out.Latched
	})
}

// aLatchRefusesWithoutLocks locks the row of an SKU that is sold out. Orders are refused
// nonetheless, and what was sold is known.
func aLatchRefusesWithoutLocks(t *testing.T, s *env) {
	store := s.latched(t)
	s.stock(t, "sale", 3)
	s.sells(t, order("sold elsewhere", "sale", 1))
	sellsIn(t, store, order("sold", "sale", 1))
	sellsIn(t, store, order("sold, too", "sale", 1))
	isLatched(t, store, "sale")
	unlock := s.hold(t, store, "sale")
	for i := range 100 {
		r := order(fmt.Sprintf("late-%d", i), "sale", 1)
		r.Limit, r.Hold = int64(i%3), time.Duration(i%2)*time.Hour
		require.Equal(t, &inventory.SoldOutError{Key: r.Key, SKU: "sale", Wanted: 1, Latched: true}, refusal(store, r))
	}
	for _, key := range []string{"sold", "sold, too", "sold elsewhere"} {
		gets(t, store, order(key, "sale", 1), "replayed")
	}
	unlock()
	gift := order("gift", "sale", 1)
	gift.Unstocked = true
	sellsIn(t, store, gift)
	s.sound(t)
}

// aLatchLooksKeysUp has another Store record keys while this one knows the SKU to be sold out. Each
// key gets its recorded answer.
func aLatchLooksKeysUp(t *testing.T, s *env) {
	store := s.latched(t)
	s.stock(t, "sale", 1)
	s.stock(t, "other", 1)
	s.sells(t, order("sold", "sale", 1))
	isLatched(t, store, "sale")
	s.restock(t, "elsewhere", "sale", 1)
	s.sells(t, order("sold elsewhere", "sale", 1))
	s.sells(t, order("other", "other", 1))
	require.NoError(t, suite.Second(s.Cancel(t.Context(), "cancelled")))
	gets(t, store, order("sold elsewhere", "sale", 1), "replayed")
	gets(t, store, order("sold", "sale", 2), isReused)
	gets(t, store, order("other", "sale", 1), isReused)
	gets(t, store, order("cancelled", "sale", 1), isCancelled)
	out := refusal(store, order("late", "sale", 1))
	assert.True(t, out != nil && out.Latched, "the control: the latch has ended: %v", out)
	s.sound(t)
}

// aLatchEndsWithWhatComesIn has units come in by each way. Those of its own Store are for sale at
// once, those of another a little later.
func aLatchEndsWithWhatComesIn(t *testing.T, s *env) {
	store, brief := s.latched(t), s.open(t, inventory.Options{Latch: 200 * time.Millisecond, Timeout: time.Minute})
	s.stock(t, "sale", 2)
	hold := held("held", "sale")
	s.sells(t, hold)
	s.sells(t, order("sold", "sale", 1))
	for name, comesIn := range map[string]func() error{
		"restock": func() error { return restock(t, store, "restock", "sale", 1) },
		"cancel":  func() error { return suite.Second(store.Cancel(t.Context(), hold.Key)) },
		"sweep": func() error {
			s.isDue(t, hold.Key)
			return suite.Second(store.Sweep(t.Context(), 10))
		},
		"repair": func() error {
			s.execf(t, "UPDATE dblock_reservation SET state = 3 WHERE reservation_key = '%s'", hold.Key)
			return suite.Second(store.Repair(t.Context(), "sale"))
		},
	} {
		isLatched(t, store, "sale")
		require.NoError(t, comesIn(), name)
		hold = held("after a "+name, "sale")
		sellsIn(t, store, hold)
	}
	isLatched(t, brief, "sale")
	s.restock(t, "elsewhere", "sale", 1)
	n := 0
	suite.Until(t, "what came in elsewhere is sold", func() bool {
		n++
		return refusal(brief, order(fmt.Sprintf("brief %d", n), "sale", 1)) == nil
	})
	records := s.open(t, inventory.Options{Latch: 10 * time.Second, RecordRefusals: true})
	for i := range 50 {
		out := refusal(records, order(fmt.Sprintf("recorded %d", i), "sale", 1))
		require.True(t, out != nil && !out.Latched, "a Store that records refusals: %+v", out)
	}
	s.sound(t)
}

// aLatchKnowsCarts refuses a cart of which one line is sold out, and knows one that was sold.
func aLatchKnowsCarts(t *testing.T, s *env) {
	store := s.latched(t)
	s.stock(t, "sale", 1)
	s.stock(t, "other", 10)
	lines := []inventory.Line{{SKU: "other", Qty: 1}, {SKU: "sale", Qty: 1}}
	require.NoError(t, suite.Second(s.ReserveAll(t.Context(), inventory.Cart{Key: "sold", Lines: lines})))
	isLatched(t, store, "sale")
	_, err := store.ReserveAll(t.Context(), inventory.Cart{Key: "late", Lines: lines})
	out := suite.As[*inventory.SoldOutError](t, err)
	assert.True(t, out.Latched && out.SKU == "sale", "%+v", out)
	assert.True(t, suite.Must(store.ReserveAll(t.Context(), inventory.Cart{Key: "sold", Lines: lines}))(t).Replayed)
	require.NoError(t, suite.Second(store.ReserveAll(t.Context(), inventory.Cart{Key: "rest", Lines: lines[:1]})))
	s.wantsBooks(t, "other", 8, 0, 2)
	s.sound(t)
}

// aRefusalWaitsForNoLock orders more than is left beside a transaction that has locked the row. The
// control is what the Store has not seen: units that came in by another Store are sold.
func aRefusalWaitsForNoLock(t *testing.T, s *env) {
	store := s.open(t, s.o)
	s.stock(t, "sale", 7)
	s.stock(t, "other", 1)
	sold := order("sold elsewhere", "sale", 4)
	s.sells(t, sold)
	tooMany := func(key string) {
		t.Helper()
		want := &inventory.SoldOutError{Key: key, SKU: "sale", Wanted: 4, Available: 3}
		require.Equal(t, want, refusal(store, order(key, "sale", 4)))
	}
	tooMany("the first shows what is left")
	unlock := s.hold(t, store, "sale")
	for i := range 10 {
		tooMany(fmt.Sprint("too many ", i))
	}
	gets(t, store, sold, "replayed")
	unlock()
	cart := inventory.Cart{Key: "cart", Lines: []inventory.Line{{SKU: "sale", Qty: 4}, {SKU: "other", Qty: 1}}}
	_, err := store.ReserveAll(t.Context(), cart)
	short := []inventory.Shortage{{SKU: "sale", Wanted: 4, Available: 3}}
	assert.Equal(t, short, suite.As[*inventory.SoldOutError](t, err).Short)
	s.restock(t, "elsewhere", "sale", 1)
	sellsIn(t, store, order("too many 0", "sale", 4))
	s.sound(t)
}

// aRefusalInAHundredCostsFewTrips sends crowds of a hundred orders, one of which wants too much,
// was sold by another process, or is over its buyer's limit there. It counts the round trips,
// beside those of crowds that are sold: a batch that decided its orders again, or one by one, would
// take many more. On Postgres a trigger counts the writes of limits: one an order.
func aRefusalInAHundredCostsFewTrips(t *testing.T, s *env) {
	const waves, size = 10, 100
	writes := func() int64 { return 0 }
	if s.Postgres() {
		s.Exec(t, `CREATE SEQUENCE quota_writes`)
		s.Exec(t, `CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN PERFORM nextval('quota_writes'); RETURN NULL; END $$`)
		s.Exec(t, `CREATE TRIGGER counted AFTER INSERT OR UPDATE ON dblock_quota FOR EACH ROW EXECUTE FUNCTION counted()`)
		writes = func() int64 { return s.Count(t, "SELECT last_value FROM quota_writes") }
	}
	for name, c := range map[string]struct {
		limit int64
		make  func(r *inventory.Request, sold inventory.Request)
		want  string
	}{
		"too much":   {0, func(r *inventory.Request, _ inventory.Request) { r.Qty = inventory.MaxQty }, isSoldOut},
		"replays":    {0, func(r *inventory.Request, sold inventory.Request) { *r = sold }, "replayed"},
		"over limit": {1, func(r *inventory.Request, sold inventory.Request) { r.Buyer = sold.Buyer }, isLimited},
	} {
		dialer := &faultconn.Dialer{}
		store := s.openOn(t, dialer, s.o)
		s.stock(t, name, 4*waves*size)
		trips, before := [2]int{}, writes()
		for wave := range 2 * waves {
			reqs, sold := ordersOf(fmt.Sprint(name, wave), size, name), order(fmt.Sprint(name, " sold ", wave), name, 1)
			for i := range reqs {
				reqs[i].Limit = c.limit
			}
			sold.Limit = c.limit
			s.sells(t, sold)
			want := map[string]int{"sold": size}
			if wave%2 == 1 {
				c.make(&reqs[size/2], sold)
				want = map[string]int{"sold": size - 1, c.want: 1}
			}
			dialer.Arm(0, 0, nil)
			assert.Equal(t, want, outcomes(crowd(t.Context(), store, reqs)), name)
			trips[wave%2] += dialer.Writes()
		}
		t.Logf("%s: %d round trips for %d crowds, %d if all are sold", name, trips[1], waves, trips[0])
		assert.LessOrEqual(t, writes()-before, int64(2*waves*(size+1)*5/4), "%s: writes of limits", name)
		assert.LessOrEqual(t, trips[1], 3*trips[0], "%s: round trips", name)
	}
	s.sound(t)
}
