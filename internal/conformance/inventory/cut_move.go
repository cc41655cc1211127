package inventory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// cutMoves are what can become of a cart. Whoever gets no answer asks again and finds what there is; whoever is told that
// nothing was written finds nothing.
var cutMoves = []struct {
	what    string
	before  inventory.State // where it stands; 0: nowhere
	want    inventory.State
	slowly  bool // with the cuts that take seconds, too; a soak tries them on all
	repeats bool // done twice it is done again
}{
	{what: toCart, want: inventory.Held, slowly: true},
	{what: toConfirm, before: inventory.Held, want: inventory.Sold},
	{what: toCancel, before: inventory.Held, want: inventory.Cancelled, slowly: true},
	{what: toCancel, before: inventory.Expired, want: inventory.Expired},
	{what: toCancel, want: inventory.Cancelled},
	{what: toExtend, before: inventory.Held, want: inventory.Held, repeats: true},
}

// aMoveCutAnywhere does each of them to a cart of its own, a trial each.
func aMoveCutAnywhere(t *testing.T, s *env) {
	s.keepsBooks(t)
	s.stock(t, "a", 1e6)
	s.stock(t, "b", 1e6)
	for _, m := range cutMoves {
		all := suite.Cuts(false)
		if !m.slowly && os.Getenv(suite.EnvSoak) == "" {
			all = []suite.Cut{{Mode: faultconn.CutBefore}, {Mode: faultconn.CutAfter}, {Mode: faultconn.HookAfter}}
		}
		suite.Everywhere(t, all, func(c suite.Cut, k int) (bool, error) {
			key := fmt.Sprintf("%s of what is %v, %v %d", m.what, m.before, c, k)
			cart := cartOf(key, inventory.Line{SKU: "a", Qty: 2, Limit: 5}, inventory.Line{SKU: "b", Qty: 1})
			cart.Request.Hold = time.Hour
			if err := s.bring(t.Context(), cart, m.before); err != nil {
				return false, err
			}
			d := cart
			if d.What = m.what; d.What == toExtend {
				d.Request.Hold = 2 * time.Hour
			}
			x, err := s.openCut(t, c, k, s.o)
			if err != nil {
				return false, err
			}
			x.Arm()
			_, told := d.once(x.Ctx, x.Store)
			struck := x.end()
			return struck || told != nil, errors.Join(x.excused(struck, told), s.honestMove(t, d, told, m.want, m.repeats))
		})
	}
	s.balanced(t)
}

// bring makes a cart stand where it is to begin.
func (s *env) bring(ctx context.Context, cart op, is inventory.State) error {
	if is == 0 {
		return nil
	}
	if _, err := cart.once(ctx, s.Store); err != nil {
		return err
	}
	if is == inventory.Expired {
		return s.expire(ctx, cart.Request.Key, 1)
	}
	return nil
}

// honestMove holds what a caller was told against what is recorded, and does the same in a Store that nothing disturbs.
func (s *env) honestMove(t *testing.T, d op, told error, want inventory.State, repeats bool) error {
	key := d.Request.Key
	got, err := s.Lookup(t.Context(), key)
	if err != nil && !errors.Is(err, inventory.ErrNotFound) {
		return err
	}
	if told == nil && got.State != want {
		return fmt.Errorf("%s: told that it is %v, recorded is %+v", key, want, got)
	}
	again, err := d.once(t.Context(), s.Store)
	switch {
	case err != nil || again.State != want:
		return fmt.Errorf("%s: told %v, and again: %+v, %w", key, told, again, err)
	case repeats:
		return nil
	case told == nil && !again.Replayed:
		return fmt.Errorf("%s: told that it is %v, and it became so again", key, want)
	case suite.Definite(told) && again.Replayed:
		return fmt.Errorf("%s: told that nothing was written, and it was: %w", key, told)
	}
	return nil
}
