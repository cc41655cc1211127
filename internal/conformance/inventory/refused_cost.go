package inventory

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// aRefusalInAHundredCostsFewTrips sends crowds of a hundred orders, in which one order is not sold:
// it asks for too much, was sold by another process, or its buyer has bought there. The round trips
// are counted on the client's side, beside those of crowds in which all are sold. A batch that
// decided its orders again for the sake of one, or one by one, would take many more. On Postgres a
// trigger counts how often limits are written: once an order, also in batches that read them first.
func aRefusalInAHundredCostsFewTrips(t *testing.T, s *env) {
	const waves, perWave = 15, 100
	quotaWrites := func() int64 { return 0 }
	if s.e.Kind == devdb.Postgres {
		s.exec(t, `CREATE SEQUENCE quota_writes`)
		s.exec(t, `CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('quota_writes'); RETURN NULL; END $$`)
		s.exec(t, `CREATE TRIGGER counted AFTER INSERT OR UPDATE ON dblock_quota FOR EACH ROW EXECUTE FUNCTION counted()`)
		quotaWrites = func() int64 { return s.count(t, "SELECT last_value FROM quota_writes") }
	}
	for name, kind := range map[string]struct {
		limit int64
		make  func(r *inventory.Request, early inventory.Request)
		want  error // nil: it is replayed
	}{
		"too much":   {0, func(r *inventory.Request, _ inventory.Request) { r.Qty = inventory.MaxQty }, inventory.ErrSoldOut},
		"replays":    {0, func(r *inventory.Request, early inventory.Request) { *r = early }, nil},
		"over limit": {1, func(r *inventory.Request, early inventory.Request) { r.Buyer = early.Buyer }, inventory.ErrLimitExceeded},
	} {
		dialer := &faultconn.Dialer{}
		store, closePool, err := s.e.OpenOn(t.Context(), s.dsn, dialer, s.o)
		if err != nil {
			t.Fatal(err)
		}
		sku := "sale of " + name
		s.stock(t, sku, 4*waves*perWave)
		trips, written := map[bool]int{}, int64(0)
		for wave := range 2 * waves {
			refused := wave%2 == 1
			reqs := ordersOf(fmt.Sprint(name, wave), perWave, sku)
			for i := range reqs {
				reqs[i].Limit = kind.limit
			}
			early := order(fmt.Sprint(name, " early ", wave), sku, 1)
			early.Limit = kind.limit
			s.sells(t, early)
			if refused {
				kind.make(&reqs[perWave/2], early)
			}
			dialer.Arm(0, 0, nil)
			before := quotaWrites()
			for i, a := range crowd(t.Context(), store, reqs) {
				switch {
				case refused && i == perWave/2 && kind.want == nil && a.err == nil && a.res.Replayed:
				case refused && i == perWave/2 && kind.want != nil && errors.Is(a.err, kind.want):
				case a.err != nil || a.res.Replayed:
					t.Errorf("%s: %s: %+v, %v", name, a.req.Key, a.res, a.err)
				}
			}
			trips[refused] += dialer.Writes()
			written += quotaWrites() - before
		}
		closePool()
		t.Logf("%s: %d round trips for %d crowds, %d if all are sold; limits were written %d times", name, trips[true], waves, trips[false], written)
		if orders := int64(2 * waves * perWave); written > orders*5/4 {
			t.Errorf("%s: limits were written %d times for %d orders", name, written, orders)
		}
		if trips[true] > 3*trips[false] {
			t.Errorf("%s: %d round trips for %d crowds, %d if all are sold", name, trips[true], waves, trips[false])
		}
	}
	s.sound(t)
}
