package pgqueue

import (
	"math"
	"time"

	"github.com/dblock-go/dblock/queue/internal/engine"
)

// spansOf is what of the ready jobs a claim looks at, one after the other: from a priority and a time to the end of a priority.
type spansOf struct {
	priorities []int16
	times      []time.Time
	lasts      []int16
}

// spans are all jobs, but for what stands before the marks.
func spans(from []engine.Mark) (s spansOf) {
	next := int16(math.MinInt16) // the first priority that is not covered yet
	for _, m := range from {
		if m.Priority > next {
			s.add(next, time.Time{}, m.Priority-1)
		}
		s.add(m.Priority, m.ReadyAt, m.Priority)
		if m.Priority == math.MaxInt16 {
			return s
		}
		next = m.Priority + 1
	}
	s.add(next, time.Time{}, math.MaxInt16)
	return s
}

func (s *spansOf) add(priority int16, at time.Time, last int16) {
	s.priorities, s.times, s.lasts = append(s.priorities, priority), append(s.times, at), append(s.lasts, last)
}
