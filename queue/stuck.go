package queue

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/queue/internal/driver"
)

// A queue counts as stuck for several times as long as a statement waited for it. So calls for
// other queues wait for a small part of their time, should it be found stuck again each time. It
// counts for twice as long if it is found again soon.
const (
	stuckTimes    = 20
	shortestStuck = time.Second
	longestStuck  = time.Minute
)

// stuckQueues are queues, or several queues of one call, of which a statement of tasks without keys
// waited, and how long they count.
type stuckQueues struct {
	mu    sync.Mutex
	found map[string]stuckTime
}

type stuckTime struct {
	at    time.Time // when a statement last waited
	lasts time.Duration
}

func (s stuckTime) is(now time.Time) bool { return now.Before(s.at.Add(s.lasts)) }

func (s stuckTime) isRecent(now time.Time) bool { return now.Before(s.at.Add(2 * s.lasts)) }

func (s *stuckQueues) add(queue string, waited time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	lasts := max(stuckTimes*waited, shortestStuck)
	switch old, has := s.found[queue]; {
	case has && old.is(now):
		lasts = max(lasts, old.lasts)
	case has && old.isRecent(now):
		lasts = max(lasts, 2*old.lasts)
	}
	if s.found == nil {
		s.found = make(map[string]stuckTime)
	}
	s.found[queue] = stuckTime{now, min(lasts, longestStuck)}
}

// has reports whether a call has tasks of such a queue, or is for the same queues as one that
// waited.
func (s *stuckQueues) has(c keyedCall) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.found, func(_ string, of stuckTime) bool { return !of.isRecent(now) })
	if len(s.found) == 0 {
		return false
	}
	isStuck := func(j driver.Insert) bool { return s.found[j.Queue].is(now) }
	return s.found[c.needs()].is(now) || slices.ContainsFunc(c.jobs, isStuck)
}
