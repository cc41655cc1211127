package optimistic_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
)

// queued is a plan whose callers queue for that row.
func queued(row any) *attempt.Plan {
	return &attempt.Plan{Attempts: 10, EscalateAfter: 9, Lock: "a lock", Row: row}
}

// TestOneAfterTheOther: of a crowd that has failed one tries at a time, and all get there. Without
// a row they all try at once.
func TestOneAfterTheOther(t *testing.T) {
	t.Parallel()
	for _, row := range []any{"crowded", nil} {
		const people = 20
		var all, failed sync.WaitGroup
		failed.Add(people)
		var inside, together, crowded atomic.Int64
		for range people {
			all.Go(func() {
				if err := queued(row).Run(t.Context(), func(_ context.Context, attempt int, _ bool) error {
					if attempt == 1 {
						failed.Done()
						failed.Wait() // all have begun before there is a line
						return optimistic.ErrStale
					}
					if inside.Add(1) > 1 {
						crowded.Add(1)
					}
					defer inside.Add(-1)
					if together.Add(1); row == nil {
						for together.Load() < people { // this ends if all are here at once
							runtime.Gosched()
						}
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if together.Load() != people || (crowded.Load() > 0) != (row == nil) {
			t.Errorf("%v: %d got there, %d beside others", row, together.Load(), crowded.Load())
		}
	}
}

// TestWhoComesLaterStandsBehind: a first attempt waits for those in the queue, but for those of
// another row, or where none is known.
func TestWhoComesLaterStandsBehind(t *testing.T) {
	t.Parallel()
	err := queued("behind").Run(t.Context(), func(ctx context.Context, attempt int, _ bool) error {
		if attempt == 1 {
			return optimistic.ErrStale
		}
		for _, row := range []any{"another", nil} {
			ran := false
			if err := queued(row).Run(ctx, func(context.Context, int, bool) error { ran = true; return nil }); err != nil || !ran {
				t.Errorf("%v has to wait: %v", row, err)
			}
		}
		if err := queued("behind").Run(ctx, func(context.Context, int, bool) error { return nil }); err != nil {
			t.Errorf("one within has to wait: %v", err)
		}
		waits, mine := impatient(t.Context()) // another caller's
		err := queued("behind").Run(waits, func(context.Context, int, bool) error { t.Error("it did not wait"); return nil })
		if !errors.Is(err, mine) || !errors.Is(err, context.Canceled) || errors.Is(err, optimistic.ErrStale) {
			t.Errorf("got %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := queued("behind").Run(waitsForNobody{t.Context()}, func(context.Context, int, bool) error { return nil }); err != nil {
		t.Errorf("a line is left: %v", err)
	}
}

// TestAContextEndsInLine: after an attempt the error has its conflict, too.
func TestAContextEndsInLine(t *testing.T) {
	t.Parallel()
	atFront, done := make(chan struct{}), make(chan struct{})
	first := make(chan error)
	waits, mine := impatient(t.Context())
	calls := 0
	err := queued("ended").Run(waits, func(context.Context, int, bool) error {
		calls++
		go func() {
			first <- queued("ended").Run(t.Context(), func(_ context.Context, attempt int, _ bool) error {
				if attempt == 1 {
					return optimistic.ErrStale
				}
				close(atFront)
				<-done
				return nil
			})
		}()
		<-atFront
		return optimistic.ErrStale
	})
	close(done)
	if !errors.Is(err, mine) || !errors.Is(err, optimistic.ErrStale) || calls != 1 {
		t.Errorf("%d calls, got %v", calls, err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// impatient ends with its cause when a caller begins to wait for it.
func impatient(ctx context.Context) (context.Context, error) {
	cause := errors.New("had enough")
	inner, end := context.WithCancelCause(ctx)
	return endsWhenAwaited{inner, func() { end(cause) }}, cause
}

type endsWhenAwaited struct {
	context.Context
	end func()
}

func (e endsWhenAwaited) Done() <-chan struct{} {
	e.end()
	return e.Context.Done()
}

// waitsForNobody panics if a caller waits for it.
type waitsForNobody struct{ context.Context }

func (waitsForNobody) Done() <-chan struct{} { panic("there is a wait") }
