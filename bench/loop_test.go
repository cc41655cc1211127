package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory"
)

func quiet(*recorder) (stop func()) { return func() {} }

func each(op Op) Round { return Round{Client: func(int) (Op, error) { return op, nil }} }

func TestClosedLoop(t *testing.T) {
	t.Parallel()
	var calls, inside, most atomic.Int64
	s, err := each(func(context.Context) (int, error) {
		most.Store(max(most.Load(), inside.Add(1)))
		defer inside.Add(-1)
		calls.Add(1)
		time.Sleep(time.Millisecond)
		return 3, nil
	}).run(t.Context(), load{clients: 4, time: 100 * time.Millisecond, watch: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if s.OK != 3*calls.Load() || calls.Load() < 4 || most.Load() > 4 {
		t.Errorf("%d units in %d calls, %d at once", s.OK, calls.Load(), most.Load())
	}
	if s.Elapsed < 100*time.Millisecond || s.Latency.P50 < 1 || s.Latency.Max < s.Latency.P99 {
		t.Errorf("took %v, latencies %+v", s.Elapsed, s.Latency)
	}
}

func TestFailuresAreCountedByKind(t *testing.T) {
	t.Parallel()
	errs := []error{
		nil, &Failure{Kind: "deadlock", Err: errors.New("x")}, fmt.Errorf("wrapped: %w", dblock.ErrBusy),
		&inventory.SoldOutError{}, dblock.ErrOverloaded,
	}
	n := 0
	s, err := each(func(context.Context) (int, error) {
		n++
		time.Sleep(time.Millisecond)
		return 1, errs[n%len(errs)]
	}).run(t.Context(), load{clients: 1, time: 50 * time.Millisecond, watch: quiet})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"deadlock", "busy", "sold_out", "overloaded"} {
		if s.Failed[kind] < 1 {
			t.Errorf("no %s among %v", kind, s.Failed)
		}
	}
	if s.OK+s.totalFailed() != int64(n) {
		t.Errorf("%d ok and %d failed of %d calls", s.OK, s.totalFailed(), n)
	}
}

func TestAnErrorEndsTheRound(t *testing.T) {
	t.Parallel()
	broken := errors.New("the server is gone")
	start := time.Now()
	_, err := Round{Client: func(id int) (Op, error) {
		return func(ctx context.Context) (int, error) {
			if id == 3 {
				return 0, broken
			}
			<-ctx.Done() // the rest wait for an answer that does not come
			return 0, ctx.Err()
		}, nil
	}}.run(t.Context(), load{clients: 8, time: time.Hour, watch: quiet})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "client 3") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestAnInterruptEndsTheRound(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := each(func(ctx context.Context) (int, error) {
		cancel()
		return 1, nil
	}).run(ctx, load{clients: 2, time: time.Hour, rate: 1e6, watch: quiet})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestOpenLoopCountsTheWait: one answer that is late makes all late that were due meanwhile. The
// closed loop, as the control, sees one slow operation and nothing else.
func TestOpenLoopCountsTheWait(t *testing.T) {
	t.Parallel()
	const stall = 200 * time.Millisecond
	late := func(rate float64) float64 {
		first := true
		s, err := each(func(context.Context) (int, error) {
			if first {
				first = false
				time.Sleep(stall)
			}
			return 1, nil
		}).run(t.Context(), load{clients: 1, time: 2 * stall, rate: rate, seed: 1, watch: quiet})
		if err != nil {
			t.Fatal(err)
		}
		return s.Latency.P50
	}
	if p50 := late(1000); p50 < 1 {
		t.Errorf("open loop: p50 %v ms, although half of the operations were due during a stall", p50)
	}
	if p50 := late(0); p50 > 1 {
		t.Errorf("closed loop: p50 %v ms", p50)
	}
}

func TestOpenLoopKeepsTheRate(t *testing.T) {
	t.Parallel()
	const rate = 2000
	s, err := each(func(context.Context) (int, error) { return 1, nil }).
		run(t.Context(), load{clients: 8, time: time.Second, rate: rate, seed: 1, watch: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if all := s.OK + s.Failed["unstarted"]; all < rate*8/10 || all > rate*12/10 {
		t.Errorf("%d were due in a second", all)
	}
}

// TestWhatIsNotStartedCounts: what was due and never begun is not left out of the result.
func TestWhatIsNotStartedCounts(t *testing.T) {
	t.Parallel()
	s, err := each(func(context.Context) (int, error) {
		time.Sleep(200 * time.Millisecond)
		return 1, nil
	}).run(t.Context(), load{clients: 1, time: 100 * time.Millisecond, rate: 1000, seed: 1, watch: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if s.OK > 1 || s.Failed["unstarted"] < 50 {
		t.Errorf("%d ok, failed %v", s.OK, s.Failed)
	}
}

func TestScheduleIsTheSameForASeed(t *testing.T) {
	t.Parallel()
	start := time.Unix(0, 0)
	a, b := newSchedule(start, start.Add(time.Second), 100, 7), newSchedule(start, start.Add(time.Second), 100, 7)
	for {
		x, more := a.next()
		y, _ := b.next()
		if !x.Equal(y) {
			t.Fatalf("%v and %v", x, y)
		}
		if !more {
			return
		}
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	_, err := each(func(context.Context) (int, error) { time.Sleep(time.Millisecond); return 1, nil }).
		run(t.Context(), load{clients: 2, time: 500 * time.Millisecond, watch: watcher(&out, 100*time.Millisecond, "x/y")})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) < 1 || !strings.HasPrefix(lines[0], "progress: x/y: 0.") || !strings.Contains(lines[0], " tps, lat ") {
		t.Errorf("%q", lines)
	}
}
