package retry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/retry"
)

var errConflict = errors.New("the server's conflict")

func isConflict(err error) bool { return errors.Is(err, errConflict) }

func options(t *testing.T, o retry.Options) retry.Options {
	t.Helper()
	o, err := o.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestRunsAgainUntilItSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []int
		runs := 0
		o := options(t, retry.Options{OnRetry: func(attempt int, err error) {
			if !isConflict(err) {
				t.Errorf("OnRetry got %v", err)
			}
			told = append(told, attempt)
		}})
		err := retry.Run(t.Context(), o, isConflict, func() error {
			if runs++; runs < 4 {
				return fmt.Errorf("attempt %d: %w", runs, errConflict)
			}
			return nil
		})
		if err != nil || runs != 4 || !slices.Equal(told, []int{1, 2, 3}) {
			t.Errorf("%d runs, told of %v, %v", runs, told, err)
		}
	})
}

// TestPausesGrow: they double and stay bounded, and no two processes pause alike.
func TestPausesGrow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pauses := func() (all []time.Duration) {
			last := time.Now()
			_ = retry.Run(t.Context(), options(t, retry.Options{Attempts: 12}), isConflict, func() error {
				all = append(all, time.Since(last))
				last = time.Now()
				return errConflict
			})
			return all[1:]
		}
		one, other := pauses(), pauses()
		if len(one) != 11 || slices.Equal(one, other) {
			t.Errorf("the pauses are %v and %v", one, other)
		}
		middle := 5 * time.Millisecond
		for i, d := range one {
			if d < middle/2 || d > middle*3/2 {
				t.Errorf("pause %d is %v, not about %v", i+1, d, middle)
			}
			middle = min(2*middle, 500*time.Millisecond)
		}
	})
}

func TestGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for attempts, want := range map[int]string{0: "10 times", 1: "once", 3: "3 times"} {
			err := retry.Run(t.Context(), options(t, retry.Options{Attempts: attempts}), isConflict, func() error { return errConflict })
			if !errors.Is(err, dblock.ErrConflict) || !isConflict(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("Attempts %d: %v", attempts, err)
			}
		}
	})
}

func TestRunsOnceWhereAgainIsWrong(t *testing.T) {
	t.Parallel()
	for _, want := range []error{
		errors.New("any other"),
		fmt.Errorf("%w: %w", dblock.ErrOutcomeUnknown, errConflict),
		fmt.Errorf("%w: %w", dblock.ErrFenced, errConflict),
		fmt.Errorf("%w: %w", dblock.ErrLost, errConflict),
	} {
		runs := 0
		err := retry.Run(t.Context(), options(t, retry.Options{}), isConflict, func() error { runs++; return want })
		if err != want || runs != 1 {
			t.Errorf("%v: %d runs, %v", want, runs, err)
		}
	}
}

func TestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the service stops"))
		defer cancel()
		start := time.Now()
		err := retry.Run(ctx, options(t, retry.Options{Attempts: 1000}), isConflict, func() error { return errConflict })
		if !isConflict(err) || !strings.Contains(err.Error(), "the service stops") || errors.Is(err, dblock.ErrConflict) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestRefusesBadAttempts(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1, 1001} {
		if _, err := (retry.Options{Attempts: n}).WithDefaults(); !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// TestALocksConflictIsRunAgain: what locks a row says dblock.ErrConflict itself. A RunTx within
// that has given up says so, too, and is not run again.
func TestALocksConflictIsRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		locked := fmt.Errorf("%w: to lock a row: %w", dblock.ErrConflict, errConflict)
		o := options(t, retry.Options{Attempts: 3})
		inner := func() error {
			return retry.Run(t.Context(), o, isConflict, func() error { runs++; return locked })
		}
		if err := retry.Run(t.Context(), o, isConflict, inner); !errors.Is(err, dblock.ErrConflict) || !isConflict(err) || runs != 3 {
			t.Errorf("%d runs, %v", runs, err)
		}
	})
}
