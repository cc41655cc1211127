package queue

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

// durations are those that no host should give.
var durations = []time.Duration{1, 0, -1, math.MinInt64, time.Nanosecond * math.MaxInt32, math.MaxInt64 - 1, math.MaxInt64}

// TestOptionsTakeAnyDuration: options refuse a duration, or what they become works: no panic, no
// loop without a pause, and no sum that overflows.
func TestOptionsTakeAnyDuration(t *testing.T) {
	t.Parallel()
	eachDuration(t, "Options", func(o Options) (Options, error) { return o.withDefaults() }, func(field string, _ time.Duration, o Options) {
		if o.TTL > 24*time.Hour || o.Timeout < 100*time.Millisecond || o.Timeout > 24*time.Hour {
			t.Errorf("Options.%s: a TTL of %v and a timeout of %v", field, o.TTL, o.Timeout)
		}
	})
	eachDuration(t, "WorkerOptions", func(o WorkerOptions) (WorkerOptions, error) { return o.withDefaults(10 * time.Second) },
		func(field string, given time.Duration, o WorkerOptions) {
			for name, every := range map[string]time.Duration{"Poll": o.Poll, "Promote": o.Promote, "Rescue": o.Rescue, "Stats": o.Stats} {
				if off := every < 0 && every == given && (name == "Promote" || name == "Rescue"); !off && (every < 10*time.Millisecond || every > 24*time.Hour) {
					t.Errorf("WorkerOptions.%s of %v: %s is %v", field, given, name, every)
				}
			}
		})
}

// eachDuration gives each field that is a duration each value, and has those checked that are
// taken.
func eachDuration[O any](t *testing.T, owner string, with func(O) (O, error), check func(string, time.Duration, O)) {
	t.Helper()
	for _, f := range reflect.VisibleFields(reflect.TypeFor[O]()) {
		if f.Type != reflect.TypeFor[time.Duration]() {
			continue
		}
		for _, d := range durations {
			var o O
			reflect.ValueOf(&o).Elem().FieldByIndex(f.Index).SetInt(int64(d))
			o, err := with(o)
			var invalid *dblock.InvalidError
			switch {
			case err == nil:
				check(f.Name, d, o)
			case !errors.As(err, &invalid) || invalid.Field != owner+"."+f.Name:
				t.Errorf("%s.%s of %v: %v", owner, f.Name, d, err)
			}
		}
	}
}

func TestExponentialTakesAnyDuration(t *testing.T) {
	t.Parallel()
	for _, first := range durations {
		for _, most := range durations {
			backoff, last := Exponential(first, most), time.Duration(0)
			for _, attempt := range []int{math.MinInt, 0, 1, 2, 31, 32, 33, 34, 35, 40, 62, 63, 64, 65, MaxAttempts, math.MaxInt} {
				for range 20 {
					got := backoff(attempt, nil)
					if got < last/2 || got < 0 || first > 0 && most > 0 && got == 0 {
						t.Fatalf("Exponential(%v, %v) of attempt %d: %v, after %v", first, most, attempt, got, last)
					}
					last = max(last, got)
				}
			}
		}
	}
}
