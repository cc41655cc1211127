package inventory

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// sellsK1 is a driver that sells the key K1 and passes over K2.
type sellsK1 struct{ driver.Driver }

func (sellsK1) Classify(error) sqlerr.Class { return sqlerr.Duplicate }

func (sellsK1) Look(context.Context, driver.Ask) (driver.Books, error) { return driver.Books{}, nil }

func (sellsK1) Ways() driver.Ways {
	return driver.Ways{
		Together: func(context.Context, driver.Orders) (driver.Verdict, int64, error) {
			return 0, 0, errors.New("a key is there already")
		},
		New: func(context.Context, driver.Orders) (driver.Verdict, []string, int64, error) {
			return driver.Sold, []string{"K2"}, -1, nil
		},
	}
}

// TestAnswersOfAKeyThatComesTwice: an order over its buyer's limit and another one with the same key take no answer of a third one.
func TestAnswersOfAKeyThatComesTwice(t *testing.T) {
	t.Parallel()
	s := &Store{driver: sellsK1{}, known: newKnown()}
	s.allotments.own = new(atomic.Int32)
	of := func(key, buyer string, qty int64) order {
		return order{Request: Request{Key: key, SKU: "sale", Buyer: buyer, Qty: qty, Limit: 2}}
	}
	answers, err := s.togetherWithin(t.Context(), []order{of("K1", "ann", 5), of("K1", "ann", 1), of("K2", "bob", 1)})
	if err != nil {
		t.Fatal(err)
	}
	if !answers[2].Value.passed {
		t.Error("K2 was not sold, and is answered as sold")
	}
}
