package inventory

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// A look grants nothing, so no answer may say that another order of the batch sold the key or
// reached the limit.
func TestALookAnswersWhatIsRecorded(t *testing.T) {
	t.Parallel()
	s := &seller{cache: newCache(time.Minute)}
	first := order{Request: Request{Key: "new", SKU: "a", Buyer: "ann", Qty: 1, Limit: 1}}
	again, other := first, first
	other.Key = "other"
	books := driver.Books{Used: map[driver.Quota]int64{{SKU: "a", Buyer: "ann"}: 0, {SKU: "a", Buyer: "bob"}: 1}}
	books.Stock, books.Skipped = map[string][]driver.Bucket{"a": {{Left: 1}}}, skipsNone
	d := newDecision(books, mode{})
	for _, o := range []order{first, again, other} {
		if a, final := s.resultOf(&o, d); final {
			t.Errorf("%q: %+v, and nothing is recorded", o.Key, a)
		}
	}
	large := order{Request: req("large", "a", 2)}
	if a, final := s.resultOf(&large, d); !final || verdict(a) != "sold out, 1 left" {
		t.Errorf("more than is left: %+v, final %v", a, final)
	}
	over := order{Request: Request{Key: "bot", SKU: "a", Buyer: "bob", Qty: 1, Limit: 1}}
	if a, final := s.resultOf(&over, d); !final || !errors.Is(a.Err, ErrLimitExceeded) {
		t.Errorf("over the limit: %+v, final %v", a, final)
	}
	d.books.Recorded = map[string][]driver.Row{"bot": over.rows(ReservationSold)}
	if a, final := s.resultOf(&over, d); !final || !a.Value.Replayed || a.Err != nil {
		t.Errorf("recorded: %+v, final %v", a, final)
	}
	s.cache.noteSoldOut(s.cache.begin(), "a")
	if a, final := s.resultOf(&over, d); !final || !a.Value.Replayed || a.Err != nil {
		t.Errorf("recorded, and sold out now: %+v, final %v", a, final)
	}
	if a, final := s.resultOf(&first, d); !final || !errors.Is(a.Err, ErrSoldOut) {
		t.Errorf("sold out: %+v, final %v", a, final)
	}
}

// sweptBeside is a driver on which other callers sweep the expired holds of ann after her order was
// found to be over its limit.
type sweptBeside struct {
	driver.Driver
	looks int
}

func (s *sweptBeside) Read(context.Context, driver.ReadRequest) (driver.Books, error) {
	s.looks++
	books := driver.Books{Stock: map[string][]driver.Bucket{"sale": {{Left: 9}}}, Used: map[driver.Quota]int64{{SKU: "sale", Buyer: "ann"}: 0}}
	if s.looks == 1 {
		books.Used[driver.Quota{SKU: "sale", Buyer: "ann"}] = 2
	}
	return books, nil
}

func (*sweptBeside) Due(context.Context, []string, int) ([]driver.Due, error) { return nil, nil }

// TestALookIsNotOlderThanSweeps: an order is not refused for expired holds that others sweep while
// it is looked at.
func TestALookIsNotOlderThanSweeps(t *testing.T) {
	t.Parallel()
	d := &sweptBeside{}
	s := &seller{driver: d, retry: &retrier{driver: d, timeout: time.Minute}, cache: newCache(time.Minute)}
	o := order{Request: Request{Key: "k", SKU: "sale", Buyer: "ann", Qty: 1, Limit: 2}}
	answers, err := s.readBatch(t.Context(), []order{o}, false)
	if err != nil || !answers[0].Value.passed {
		t.Errorf("%+v, %v", answers, err)
	}
}
