package conformance

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// aRefusalInAHundredCostsFewTrips sends crowds of a hundred orders, in which one order is not sold: it asks for too much, was sold by
// another process, or its buyer has bought there. The round trips are counted on the client's side, beside those of crowds in which all
// are sold. A batch that decided its orders again for the sake of one, or one by one, would take many more.
func aRefusalInAHundredCostsFewTrips(t *testing.T, s *shop) {
	const waves, perWave = 30, 100
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
		trips := map[bool]int{}
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
			for i, a := range crowd(t.Context(), store, reqs) {
				switch {
				case refused && i == perWave/2 && kind.want == nil && a.err == nil && a.res.Replayed:
				case refused && i == perWave/2 && kind.want != nil && errors.Is(a.err, kind.want):
				case a.err != nil || a.res.Replayed:
					t.Errorf("%s: %s: %+v, %v", name, a.req.Key, a.res, a.err)
				}
			}
			trips[refused] += dialer.Writes()
		}
		closePool()
		t.Logf("%s: %d round trips for %d crowds, %d if all are sold", name, trips[true], waves, trips[false])
		if trips[true] > 3*trips[false] {
			t.Errorf("%s: %d round trips for %d crowds, %d if all are sold", name, trips[true], waves, trips[false])
		}
	}
	s.sound(t)
}
