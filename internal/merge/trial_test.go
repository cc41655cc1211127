package merge

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// TestSuspects has requests that fail with an error that may be the server's: some are to blame, or all fail.
func TestSuspects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bad             []int
		failed, maximum int // requests, and statements
	}{{[]int{13}, 1, 20}, {[]int{0, 1, 2, 3, 99}, 5, 40}, {nil, 101, 35}} {
		synctest.Test(t, func(t *testing.T) {
			broken := errors.New("the server says no")
			statements, held := 0, make(chan struct{})
			r := &rig{Queue: New(Options[order, int]{
				Key:     func(o order) string { return o.key },
				Suspect: func(err error) bool { return errors.Is(err, broken) },
				Run: func(_ context.Context, batch []order, _ bool) ([]Answer[int], error) {
					if statements++; statements == 1 {
						<-held
					}
					if c.bad == nil || slices.ContainsFunc(batch, func(o order) bool { return slices.Contains(c.bad, o.n) }) {
						return nil, broken
					}
					return echo(batch), nil
				},
			})}
			var ends []chan error
			for n := range 101 {
				ends = append(ends, r.do(t.Context(), "a", n))
			}
			close(held)
			failed := 0
			for n, end := range ends {
				if err := <-end; err != nil {
					failed++
					if c.bad != nil && !slices.Contains(c.bad, n) {
						t.Errorf("request %d failed with others: %v", n, err)
					}
				}
			}
			if failed != c.failed || statements > c.maximum {
				t.Errorf("%d requests failed, want %d; %d statements, want at most %d", failed, c.failed, statements, c.maximum)
			}
		})
	}
}
