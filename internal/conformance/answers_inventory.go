package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// RunAnswers replaces the server's answers while a Store sells, by each kind of conversation with the server.
func (e Inventory) RunAnswers(t *testing.T) {
	var users []answersUser
	for _, strategy := range ways {
		users = append(users, answersUser{strategy.String(), func(ctx context.Context, x *answersTrial) error {
			return e.use(ctx, x, inventory.Options{Strategy: strategy, MaxInFlight: 4})
		}})
	}
	users = append(users, answersUser{"allotments", func(ctx context.Context, x *answersTrial) error {
		return e.use(ctx, x, inventory.Options{Allotment: 3})
	}})
	runAnswers(t, e.Kind, users)
}

func (e Inventory) use(ctx context.Context, x *answersTrial, o inventory.Options) error {
	o.Timeout = time.Second
	s, closePool, err := e.OpenOn(ctx, x.dsn, &faultconn.Dialer{}, o)
	if err != nil {
		x.told(err)
		x.heal()
		err := x.again(ctx, "opening", func(ctx context.Context) (err error) {
			s, closePool, err = e.OpenOn(ctx, x.dsn, &faultconn.Dialer{}, o)
			return err
		})
		if err != nil {
			return err
		}
	}
	defer closePool()
	stock := inventory.Adjustment{ID: x.key, SKU: x.key, Delta: 100}
	_, err = s.Restock(ctx, stock)
	x.told(err)
	var crowd sync.WaitGroup
	for n := range x.crowd {
		crowd.Go(func() { e.order(ctx, x, s, n) })
	}
	crowd.Wait()
	_, err = s.Audit(ctx, x.key)
	x.told(err)
	_, err = s.Sweep(ctx, 10)
	x.told(err)
	_, err = s.Repair(ctx, x.key)
	x.told(err)
	x.heal()
	err = x.again(ctx, "selling", func(ctx context.Context) error {
		if _, err := s.Restock(ctx, stock); err != nil {
			return err
		}
		_, err := s.Reserve(ctx, inventory.Request{Key: x.key + "/last", SKU: x.key, Qty: 1})
		return err
	})
	closing, cancel := context.WithTimeout(ctx, answersPatience)
	defer cancel()
	x.told(s.Close(closing))
	if !x.lied {
		err = errors.Join(err, e.isExact(ctx, x))
	}
	return err
}

// order sends one order of each kind, each under a key of its own.
func (e Inventory) order(ctx context.Context, x *answersTrial, s *inventory.Store, n int) {
	key := fmt.Sprintf("%s/%d", x.key, n)
	_, err := s.Reserve(ctx, inventory.Request{Key: key, SKU: x.key, Qty: 2, Buyer: "b", Limit: 50})
	x.told(err)
	_, err = s.Reserve(ctx, inventory.Request{Key: key + "/held", SKU: x.key, Qty: 1, Hold: time.Hour})
	x.told(err)
	if n == 0 {
		_, err = s.Confirm(ctx, key+"/held")
	} else {
		_, err = s.Cancel(ctx, key+"/held")
	}
	x.told(err)
	_, err = s.ReserveAll(ctx, inventory.Cart{Key: key + "/cart", Buyer: "b", Lines: []inventory.Line{
		{SKU: x.key, Qty: 1}, {SKU: x.key + "/coupon", Qty: 1, Limit: 9, Unstocked: true},
	}})
	x.told(err)
	_, err = s.Lookup(ctx, key)
	x.told(err)
}

// isExact holds the books against what was restocked.
func (e Inventory) isExact(ctx context.Context, x *answersTrial) error {
	s, closePool, err := e.OpenOn(ctx, x.near, &faultconn.Dialer{}, inventory.Options{})
	if err != nil {
		return err
	}
	defer closePool()
	defer s.Close(ctx)
	books, err := s.Audit(ctx, x.key)
	if err != nil {
		return err
	}
	if len(books) != 1 || books[0].Drift() != 0 || books[0].Restocked != 100 {
		return fmt.Errorf("the books are %+v", books)
	}
	return nil
}
