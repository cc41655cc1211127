package optimistic_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock/optimistic"
)

// queued is a plan whose callers stand in line for that row.
func queued(row any) *optimistic.Plan {
	return &optimistic.Plan{Attempts: 10, EscalateAfter: 3, Lock: "a lock", Row: row}
}

// TestOneAfterTheOther: in a crowd nobody fails twice because of another one of the process, and no line is left.
func TestOneAfterTheOther(t *testing.T) {
	t.Parallel()
	const people, times = 16, 50
	p := queued("crowded")
	var version, most atomic.Int64
	var all sync.WaitGroup
	for range people {
		all.Go(func() {
			for range times {
				if err := p.Run(t.Context(), func(_ context.Context, attempt int) error {
					if n := int64(attempt); n > most.Load() {
						most.Store(n)
					}
					seen := version.Load()
					if attempt == 1 { // somebody comes in between
						version.CompareAndSwap(seen, seen+0)
					}
					if !version.CompareAndSwap(seen, seen+1) {
						return optimistic.ErrConflict
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if version.Load() != people*times {
		t.Errorf("%d", version.Load())
	}
}

// TestWhoComesLaterStandsBehind: who fails is in line, and a first attempt waits for it; that of another row does not, nor where
// no row is known.
func TestWhoComesLaterStandsBehind(t *testing.T) {
	t.Parallel()
	p := queued("behind")
	var order []string
	begun, second := make(chan struct{}), make(chan error)
	err := p.Run(t.Context(), func(ctx context.Context, attempt int) error {
		if attempt == 1 {
			return optimistic.ErrConflict
		}
		ended, end := context.WithCancelCause(ctx)
		mine := errors.New("had enough")
		end(mine)
		for _, free := range []*optimistic.Plan{queued("another"), queued(nil)} {
			ran := false
			if err := free.Run(ctx, func(context.Context, int) error { ran = true; return nil }); err != nil || !ran {
				t.Errorf("%v has to wait: %v", free.Row, err)
			}
		}
		go func() {
			close(begun)
			second <- p.Run(t.Context(), func(context.Context, int) error { order = append(order, "second"); return nil })
		}()
		<-begun
		if err := p.Run(ended, func(context.Context, int) error { t.Error("it did not wait"); return nil }); !errors.Is(err, mine) {
			t.Errorf("got %v", err)
		}
		order = append(order, "first")
		return nil
	})
	if err := errors.Join(err, <-second); err != nil {
		t.Fatal(err)
	}
	if len(order) != 2 || order[0] != "first" {
		t.Errorf("in the order %v", order)
	}
}

// TestAContextEndsInLine: nothing is tried, the error has the cause and the last conflict, and the place is free.
func TestAContextEndsInLine(t *testing.T) {
	t.Parallel()
	p, mine := queued("ended"), errors.New("had enough")
	err := p.Run(t.Context(), func(outer context.Context, attempt int) error {
		if attempt == 1 {
			return optimistic.ErrConflict
		}
		for _, first := range []bool{true, false} {
			ctx, end := context.WithCancelCause(outer)
			calls := 0
			one := func(context.Context, int) error { calls++; return optimistic.ErrConflict }
			watched := *p
			if first {
				end(mine) // seen before the first attempt
			} else {
				watched.Row = nil // the first attempt goes ahead, and then it has a row
				watched.OnConflict = func(error, int) { end(mine) }
			}
			err := watched.Run(ctx, one)
			if !errors.Is(err, mine) || !errors.Is(err, context.Canceled) || errors.Is(err, optimistic.ErrConflict) == first {
				t.Errorf("%v", err)
			}
			if want := map[bool]int{true: 0, false: 1}[first]; calls != want {
				t.Errorf("%d calls, want %d", calls, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context(), func(context.Context, int) error { return nil }); err != nil {
		t.Errorf("after all: %v", err)
	}
}
