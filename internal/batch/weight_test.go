package batch

import (
	"slices"
	"testing"
	"testing/synctest"
)

// TestWeightBoundsAStatement has requests that weigh as much as their numbers, at most 10 in a
// statement.
func TestWeightBoundsAStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) {
			o.Weight, o.MaxWeight = func(o order) int { return o.n }, 10
			o.MaxInFlight = 1
		})
		var ends []chan error
		for _, o := range []order{{"first", 1}, {"a", 4}, {"a", 6}, {"a", 3}, {"b", 5}, {"c", 99}, {"d", 2}, {"d", 8}, {"e", 1}} {
			ends = append(ends, r.do(t.Context(), o.key, o.n))
		}
		for _, want := range [][]int{{1}, {4, 6}, {5}, {99}, {2, 8}, {1, 3}} {
			s := <-r.sent
			if got := s.numbers(); !slices.Equal(got, want) {
				t.Errorf("a statement carries %v, want %v", got, want)
			}
			s.answer()
			synctest.Wait()
		}
		for _, end := range ends {
			if err := <-end; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestApartCarriesOneKey has requests of three keys wait while a statement is in flight: each key
// has a statement of its own.
func TestApartCarriesOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.Apart, o.MaxInFlight = true, 1 })
		var ends []chan error
		for i, key := range []string{"first", "a", "b", "a", "c", "b"} {
			ends = append(ends, r.do(t.Context(), key, i))
		}
		for _, want := range [][]int{{0}, {1, 3}, {2, 5}, {4}} {
			s := <-r.sent
			if got := s.numbers(); !slices.Equal(got, want) {
				t.Errorf("a statement carries %v, want %v", got, want)
			}
			s.answer()
			synctest.Wait()
		}
		for _, end := range ends {
			if err := <-end; err != nil {
				t.Error(err)
			}
		}
	})
}
