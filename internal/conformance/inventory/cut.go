package inventory

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// cutStore is a Store of its own for one trial, on a dialer that strikes.
type cutStore struct {
	*inventory.Store
	suite.Trial
	closePool func()
}

func (s *env) openCut(t *testing.T, c suite.Cut, k int, o inventory.Options) (*cutStore, error) {
	if c.Slow() {
		o.Timeout = suite.CutTimeout
	}
	x := &cutStore{}
	x.Begin(t.Context(), c, k)
	var err error
	x.Store, x.closePool, err = s.e.OpenOn(t.Context(), s.dsn, &x.Dialer, o)
	return x, err
}

// end ends the trial: what is late arrives, and nothing of the Store's is left on the server.
func (x *cutStore) end() (struck bool) {
	struck = x.Heal()
	x.Dialer.CloseAll() // a pool would wait for a server that is stalled
	x.GiveUp()
	x.closePool()
	return struck
}

// excused fails an error that the cut is no excuse for. A single cut connection is none at all. A
// timeout as short as that of the slow cuts can also pass on a machine that is busy.
func (x *cutStore) excused(struck bool, err error) error {
	switch {
	case err == nil:
		return nil
	case x.Cut.Slow() && (suite.IsUnknown(err) || errors.Is(err, dblock.ErrBusy) || errors.Is(err, dblock.ErrUnavailable)):
		return nil
	case !struck:
		return fmt.Errorf("undisturbed, and yet: %w", err)
	case x.Cut.Cancels() && errors.Is(err, context.Canceled):
		return nil
	}
	return fmt.Errorf("told without need: %w", err)
}

// Cuts runs the tests of cut orders alone, for an engine in another mode than its usual one.
func (e Inventory) Cuts(t *testing.T) {
	for _, strategy := range []inventory.Strategy{inventory.Merge, inventory.SkipLocked} {
		t.Run("AnOrder/"+strategy.String(), func(t *testing.T) {
			anOrderCutAnywhere(t, e.env(t, inventory.Options{Strategy: strategy}))
		})
	}
	t.Run("ABatch", func(t *testing.T) { aBatchCutAnywhere(t, e.env(t, inventory.Options{})) })
}

// anOrderCutAnywhere sells one order a trial, each of an SKU of its own.
func anOrderCutAnywhere(t *testing.T, s *env) {
	suite.Everywhere(t, suite.Cuts(false, true), func(c suite.Cut, k int) (bool, error) {
		r := order(fmt.Sprintf("%v %d", c, k), fmt.Sprintf("%v %d", c, k), 2)
		if _, err := s.Restock(t.Context(), inventory.Adjustment{ID: r.SKU, SKU: r.SKU, Delta: 10}); err != nil {
			return false, err
		}
		x, err := s.openCut(t, c, k, s.o)
		if err != nil {
			return false, err
		}
		x.Arm()
		_, told := x.Reserve(x.Ctx, r)
		struck := x.end()
		return struck || told != nil, errors.Join(x.excused(struck, told), s.honest(t, r, told))
	})
	books, err := s.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range books {
		if b.Sold != 2 || b.Available != 8 {
			t.Errorf("one order for 2 of 10, sent again until sold: %+v", b)
		}
	}
	s.sound(t)
}

// honest holds what a caller was told against what is recorded, and sends the order again through
// a Store that nothing disturbs. That waits for whatever the server still does with it: it takes
// the row lock.
func (s *env) honest(t *testing.T, r inventory.Request, told error) error {
	got, err := s.Lookup(t.Context(), r.Key)
	found := err == nil
	switch {
	case err != nil && !errors.Is(err, inventory.ErrNotFound):
		return err
	case told == nil && (!found || got.State != inventory.Sold):
		return fmt.Errorf("%s: told that it is sold, recorded is %+v, %w", r.Key, got, err)
	case suite.Definite(told) && found:
		return fmt.Errorf("%s: told that nothing was written, recorded is %+v: %w", r.Key, got, told)
	}
	again, err := reserve(t.Context(), s.Store, r)
	switch {
	case err != nil:
		return fmt.Errorf("%s: told %v, and sent again: %w", r.Key, told, err)
	case told == nil && !again.Replayed:
		return fmt.Errorf("%s: told that it is sold, and sold again", r.Key)
	case suite.Definite(told) && again.Replayed:
		return fmt.Errorf("%s: told that nothing was written, and it was sold then: %w", r.Key, told)
	}
	return nil
}
