package bench

import (
	"math/rand/v2"
	"sync"
	"time"
)

// schedule says when the operations of an open loop are due: at random moments, as many a second as
// was asked for on average, whether a caller is free or not.
type schedule struct {
	end  time.Time
	step float64 // nanoseconds between two, on average

	mu     sync.Mutex
	last   time.Time
	random *rand.Rand
}

func newSchedule(start, end time.Time, rate float64, seed uint64) *schedule {
	return &schedule{end: end, step: 1e9 / rate, last: start, random: rand.New(rand.NewPCG(seed, 1))}
}

// next returns the next moment; false when the time is up.
func (s *schedule) next() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = s.last.Add(time.Duration(s.random.ExpFloat64() * s.step))
	return s.last, s.last.Before(s.end)
}
