package batch

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/sqlerr"
)

// TestSuspects has requests fail with an error that may be the server's: some, or all of them. The
// server is quick, or so busy that a statement takes 2 s.
func TestSuspects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bad          []int
		failed, most int // requests, and statements
		takes        time.Duration
	}{
		{[]int{13}, 1, 20, 0},
		{[]int{0, 1, 2, 3, 99}, 5, 40, 0},
		{[]int{0, 1, 2, 3, 99}, 5, 40, 2 * time.Second},
		{nil, 101, 20, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			refused := errors.New("the server refuses it")
			statements, held := 0, make(chan struct{})
			r := &rig{Queue: New(Options[order, int]{
				Key:      func(o order) string { return o.key },
				Classify: func(error) sqlerr.Class { return sqlerr.Unclassified },
				Run: func(_ context.Context, batch []order, _ bool) ([]Result[int], error) {
					if statements++; statements == 1 {
						<-held
					}
					time.Sleep(c.takes)
					isBad := func(o order) bool { return c.bad == nil || slices.Contains(c.bad, o.n) }
					if slices.ContainsFunc(batch, isBad) {
						return nil, refused
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
			if failed != c.failed || statements > c.most {
				t.Errorf("%d requests failed, want %d; %d statements, want at most %d",
					failed, c.failed, statements, c.most)
			}
		})
	}
}
