package inventory

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// anAdjustmentCutAnywhere restocks: an SKU that is known, one that is new, and a write-off of more
// than there is, which ends in a rollback.
func anAdjustmentCutAnywhere(t *testing.T, s *env) {
	for _, c := range []struct {
		name          string
		before, delta int64
		after         int64
		want          error
	}{
		{"delivery", 10, 5, 15, nil},
		{"first delivery", 0, 5, 5, nil},
		{"write-off of too much", 10, -11, 10, inventory.ErrSoldOut},
	} {
		suite.Everywhere(t, suite.Cuts(false), func(cut suite.Cut, k int) (bool, error) {
			name := fmt.Sprintf("%s, %v %d", c.name, cut, k)
			if c.before > 0 {
				if _, err := s.Restock(t.Context(), inventory.Adjustment{ID: "before " + name, SKU: name, Delta: c.before}); err != nil {
					return false, err
				}
			}
			x, err := s.openCut(t, cut, k, s.o)
			if err != nil {
				return false, err
			}
			x.Arm()
			a := inventory.Adjustment{ID: name, SKU: name, Delta: c.delta}
			_, told := x.Restock(x.Ctx, a)
			struck := x.end()
			if c.want == nil || !errors.Is(told, c.want) {
				err = x.excused(struck, told)
			}
			return struck || told != nil && !errors.Is(told, inventory.ErrSoldOut), errors.Join(err, s.honestAdjustment(t, a, told, c.want, c.after))
		})
	}
	s.sound(t)
}

// honestAdjustment holds what the caller was told against what an undisturbed Store is told.
func (s *env) honestAdjustment(t *testing.T, a inventory.Adjustment, told, want error, after int64) error {
	replayed, err := s.Restock(t.Context(), a)
	switch {
	case !errors.Is(err, want):
		return fmt.Errorf("sent again: got %w, want %v", err, want)
	case told == nil && !replayed:
		return errors.New("told that it is done, and it was done again")
	case suite.Definite(told) && replayed:
		return fmt.Errorf("told that nothing was written, and it was: %w", told)
	}
	books, err := s.Audit(t.Context(), a.SKU)
	if err != nil {
		return err
	}
	if len(books) != 1 || books[0].Available != after || books[0].Restocked != after {
		return fmt.Errorf("%d of it was to be left: %+v", after, books)
	}
	return nil
}
