package inventory

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// RunAnswers replaces the server's answers while a Store sells, in each kind of conversation.
func (e Inventory) RunAnswers(t *testing.T) {
	users := []answers.User{{Name: "allotments", Use: func(ctx context.Context, x *answers.Trial) error {
		return e.use(ctx, x, inventory.Options{Allotment: 3})
	}}}
	for name, way := range ways {
		way.MaxInFlight = 4
		users = append(users, answers.User{Name: name, Use: func(ctx context.Context, x *answers.Trial) error {
			return e.use(ctx, x, way)
		}})
	}
	answers.Run(t, e.Kind, users)
}

func (e Inventory) use(ctx context.Context, x *answers.Trial, o inventory.Options) error {
	o.Timeout = time.Second
	var s *inventory.Store
	var closePool func()
	err := x.Open(ctx, func(ctx context.Context) (err error) {
		s, closePool, err = e.OpenOn(ctx, x.DSN, &faultconn.Dialer{}, o)
		return err
	})
	if err != nil {
		return err
	}
	defer closePool()
	stock := inventory.Adjustment{ID: x.Key, SKU: x.Key, Delta: 100}
	x.Returned(suite.Second(s.Restock(ctx, stock)))
	suite.Crowd(x.Crowd, func(n int) { e.order(ctx, x, s, n) })
	x.Returned(suite.Second(s.Audit(ctx, x.Key)))
	x.Returned(suite.Second(s.Sweep(ctx, 10)))
	x.Returned(suite.Second(s.Repair(ctx, x.Key)))
	x.Heal()
	err = x.Again(ctx, "selling", func(ctx context.Context) error {
		if _, err := s.Restock(ctx, stock); err != nil {
			return err
		}
		return suite.Second(s.Reserve(ctx, inventory.Request{Key: x.Key + "/last", SKU: x.Key, Qty: 1}))
	})
	x.Close(ctx, s.Close)
	if x.Lied || err != nil {
		return err
	}
	return e.isExact(ctx, x)
}

// order sends one order of each kind, each under a key of its own.
func (e Inventory) order(ctx context.Context, x *answers.Trial, s *inventory.Store, n int) {
	key := fmt.Sprintf("%s/%d", x.Key, n)
	x.Returned(suite.Second(s.Reserve(ctx, inventory.Request{Key: key, SKU: x.Key, Qty: 2, Buyer: "b", Limit: 50})))
	x.Returned(suite.Second(s.Reserve(ctx, inventory.Request{Key: key + "/held", SKU: x.Key, Qty: 1, Hold: time.Hour})))
	if n == 0 {
		x.Returned(suite.Second(s.Confirm(ctx, key+"/held")))
	} else {
		x.Returned(suite.Second(s.Cancel(ctx, key+"/held")))
	}
	x.Returned(suite.Second(s.ReserveAll(ctx, inventory.Cart{Key: key + "/cart", Buyer: "b", Lines: []inventory.Line{
		{SKU: x.Key, Qty: 1}, {SKU: x.Key + "/coupon", Qty: 1, Limit: 9, Unstocked: true},
	}})))
	x.Returned(suite.Second(s.Lookup(ctx, key)))
}

// isExact compares the books with what was restocked.
func (e Inventory) isExact(ctx context.Context, x *answers.Trial) error {
	s, closePool, err := e.OpenOn(ctx, x.Near, &faultconn.Dialer{}, inventory.Options{})
	if err != nil {
		return err
	}
	defer closePool()
	defer s.Close(ctx)
	books, err := s.Audit(ctx, x.Key)
	if err == nil && (len(books) != 1 || books[0].Drift() != 0 || books[0].Restocked != 100) {
		err = fmt.Errorf("the books are %+v", books)
	}
	return err
}
