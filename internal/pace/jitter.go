package pace

import (
	"math"
	"math/rand/v2"
	"time"
)

// Jitter returns d give or take a half, so that processes do not act in step. A negative d counts
// as 0, and one of more than 146 years as 146 years.
func Jitter(d time.Duration) time.Duration {
	d = min(max(d, 0), math.MaxInt64/2)
	return d/2 + rand.N(d+1)
}
