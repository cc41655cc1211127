package pace

import (
	"math"
	"testing"
	"time"
)

func TestJitterTakesAnyDuration(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, 2, time.Second, math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64} {
		for range 1000 {
			bounded := min(max(d, 0), math.MaxInt64/2)
			if got := Jitter(d); got < bounded/2 || got > bounded/2+bounded {
				t.Fatalf("of %v: %v", d, got)
			}
		}
	}
}
