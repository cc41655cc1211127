package optimistic_test

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
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
)

func conflict() error { return optimistic.Rows(0, nil, at) }

func TestDoRepeatsConflicts(t *testing.T) {
	t.Parallel()
	for name, met := range map[string]error{
		"ours": conflict(), "in another": fmt.Errorf("a service: %w", conflict()), "the server's": fmt.Errorf("%w: 40001", dblock.ErrConflict),
		"the caller's": errMine,
	} {
		synctest.Test(t, func(t *testing.T) {
			var attempts, told []int
			err := optimistic.Do(t.Context(), func(_ context.Context, attempt int) error {
				if attempts = append(attempts, attempt); attempt < 4 {
					return met
				}
				return nil
			}, optimistic.RetryIf(func(err error) bool { return false }), optimistic.RetryIf(func(err error) bool { return err == errMine }),
				optimistic.OnConflict(func(err error, attempt int) {
					if err != met {
						t.Errorf("%s: it was told of %v", name, err)
					}
					told = append(told, attempt)
				}))
			if err != nil || !slices.Equal(attempts, []int{1, 2, 3, 4}) || !slices.Equal(told, []int{1, 2, 3}) {
				t.Errorf("%s: attempts %v, told of %v, %v", name, attempts, told, err)
			}
		})
	}
}

// TestDoRepeatsNothingElse: not what may be written, nor after the caller's context has ended,
// whatever else the error is.
func TestDoRepeatsNothingElse(t *testing.T) {
	t.Parallel()
	always := optimistic.RetryIf(func(error) bool { return true })
	for _, of := range []struct {
		met  error
		opts []optimistic.Option
	}{
		{met: errMine}, {met: dblock.ErrUnavailable}, {met: optimistic.ErrNotFound}, {met: optimistic.ErrTooMany},
		{errors.Join(conflict(), dblock.ErrOutcomeUnknown), []optimistic.Option{always}},
		{errors.Join(conflict(), dblock.ErrFenced), []optimistic.Option{always}},
		{errors.Join(conflict(), dblock.ErrLost), []optimistic.Option{always}},
		{errors.Join(conflict(), context.Canceled), []optimistic.Option{always}},
		{errors.Join(conflict(), context.DeadlineExceeded), []optimistic.Option{always}},
	} {
		calls := 0
		err := optimistic.Do(t.Context(), func(context.Context, int) error { calls++; return of.met }, of.opts...)
		if err != of.met || calls != 1 {
			t.Errorf("%v: %d calls, %v", of.met, calls, err)
		}
	}
}

func TestDoGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := &optimistic.StaleError{Table: "account", Key: 17, Expected: 3}
		for _, met := range []error{first, fmt.Errorf("a service: %w", first)} {
			calls, told := 0, 0
			err := optimistic.Do(t.Context(), func(context.Context, int) error { calls++; return met },
				optimistic.OnConflict(func(error, int) { told++ }))
			var last *optimistic.StaleError
			if !errors.As(err, &last) || last.Attempts != 10 || calls != 10 || told != 10 || last == first || first.Attempts != 0 {
				t.Errorf("%d calls, told %d times, %v", calls, told, err)
			}
			if !strings.Contains(err.Error(), "(10 attempts)") || met != error(first) && !strings.Contains(err.Error(), "a service") {
				t.Errorf("it says %v", err)
			}
		}
		for met, kind := range map[error]error{dblock.ErrConflict: dblock.ErrConflict, errMine: errMine} {
			err := optimistic.Do(t.Context(), func(context.Context, int) error { return met },
				optimistic.Attempts(3), optimistic.RetryIf(func(err error) bool { return err == errMine }))
			if !errors.Is(err, kind) || !strings.Contains(err.Error(), "3 times") || errors.Is(err, optimistic.ErrStale) {
				t.Errorf("%v: %v", met, err)
			}
		}
	})
}

// TestPausesAreAnywhereBelowTheirBound: the bound doubles up to the most, and no two callers pause
// alike.
func TestPausesAreAnywhereBelowTheirBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pauses := func(opts ...optimistic.Option) (all []time.Duration) {
			last := time.Now()
			_ = optimistic.Do(t.Context(), func(context.Context, int) error {
				all = append(all, time.Since(last))
				last = time.Now()
				return conflict()
			}, append(opts, optimistic.Attempts(400))...)
			return all[1:]
		}
		one, other := pauses(), pauses()
		if slices.Equal(one, other) {
			t.Error("two callers pause alike")
		}
		bound, most := 2*time.Millisecond, 100*time.Millisecond
		for i, d := range one {
			if d < 0 || d > bound {
				t.Errorf("pause %d is %v, more than %v", i+1, d, bound)
			}
			bound = min(2*bound, most)
		}
		late := one[20:]
		if shortest, longest := slices.Min(late), slices.Max(late); shortest > most/10 || longest < most*9/10 {
			t.Errorf("the pauses are %v to %v, not anything up to %v", shortest, longest, most)
		}
		for _, d := range pauses(optimistic.Backoff(0, 0)) {
			if d != 0 {
				t.Errorf("without pauses there is one of %v", d)
			}
		}
		if d := slices.Max(pauses(optimistic.Backoff(time.Minute, time.Minute))); d < 50*time.Second || d > time.Minute {
			t.Errorf("the longest pause of up to a minute is %v", d)
		}
	})
}

func TestDoEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stopped := errors.New("the service stops")
		ctx, cancel := context.WithCancelCause(t.Context())
		calls := 0
		go func() { time.Sleep(time.Second); cancel(stopped) }()
		err := optimistic.Do(ctx, func(context.Context, int) error { calls++; return conflict() },
			optimistic.Backoff(time.Minute, time.Minute), optimistic.Attempts(1000))
		var last *optimistic.StaleError
		if !errors.Is(err, stopped) || !errors.Is(err, context.Canceled) || !errors.As(err, &last) || last.Attempts != calls || calls < 1 {
			t.Errorf("%d calls, %v", calls, err)
		}
		if err := optimistic.Do(ctx, func(context.Context, int) error { calls = -1; return nil }); !errors.Is(err, stopped) || calls == -1 {
			t.Errorf("it had ended before: %v", err)
		}
	})
}

func TestDoRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]optimistic.Option{
		"no attempt": {optimistic.Attempts(0)}, "less": {optimistic.Attempts(-1)}, "too many": {optimistic.Attempts(1001)},
		"first above most": {optimistic.Backoff(2, 1)}, "negative": {optimistic.Backoff(-1, 1)},
		"too long": {optimistic.Backoff(0, time.Minute+1)}, "nil": {nil}, "RetryIf": {optimistic.RetryIf(nil)},
		"a driver's": {attempt.Opt(func(p *attempt.Plan) { p.EscalateAfter, p.Lock = 1, "a lock" })},
	} {
		calls := 0
		err := optimistic.Do(t.Context(), func(context.Context, int) error { calls++; return nil }, opts...)
		if !errors.As(err, new(*dblock.InvalidError)) || calls != 0 {
			t.Errorf("%s: %d calls, %v", name, calls, err)
		}
	}
	if err := optimistic.Do(t.Context(), nil); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("without a function: %v", err)
	}
}

func TestAPanicPassesThrough(t *testing.T) {
	t.Parallel()
	defer func() {
		if got := recover(); got != "fn's own" {
			t.Errorf("it came out as %v", got)
		}
	}()
	_ = optimistic.Do(t.Context(), func(context.Context, int) error { panic("fn's own") })
}
