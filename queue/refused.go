package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

const (
	firstPass   = time.Second // it doubles each time
	longestPass = time.Minute
	maxPassed   = 100 // jobs that are passed over at once
	maxRefused  = 100 // items of one call of inParts, before it gives up
)

// passed is jobs that are passed over for a while, because the server refused what was to become of
// them. It forgets a job a while after its time is up.
type passed struct{ jobs map[driver.ID]pass }

// pass is a job that is passed over.
type pass struct {
	times int
	until time.Time
}

// add passes over a job: for longer each time, up to longestPass. If there are too many, it forgets
// the others.
func (p *passed) add(job driver.ID, now time.Time) {
	times := p.jobs[job].times
	if p.jobs == nil || len(p.jobs) >= maxPassed {
		p.jobs = make(map[driver.ID]pass)
	}
	p.jobs[job] = pass{times + 1, now.Add(pace.Jitter(min(firstPass<<min(times, 10), longestPass)))}
}

// has reports whether a job is passed over now.
func (p *passed) has(job driver.ID, now time.Time) bool { return p.jobs[job].until.After(now) }

// now is the jobs that are passed over now.
func (p *passed) now(now time.Time) []driver.ID {
	maps.DeleteFunc(p.jobs, func(_ driver.ID, one pass) bool { return now.Sub(one.until) > longestPass })
	jobs := slices.Collect(maps.Keys(p.jobs))
	return slices.DeleteFunc(jobs, func(job driver.ID) bool { return !p.has(job, now) })
}

func (p *passed) len() int { return len(p.jobs) }

// mayBeOfOne reports whether one of several items may have caused an error. One for which time ran
// out is not of one: there may have been no connection.
func (s *statements) mayBeOfOne(err error) bool {
	return err != nil && s.classify(err).MayBeOfOne() && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

// inParts has f write items together. If the server refuses them, and one of them may be to blame,
// f gets each half, and so on. So an item that is refused stops no other. It calls refused for each
// that is refused alone. It returns other errors, and the last of maxRefused: then some items are
// not written.
func inParts[T any](db *statements, items []T, f func([]T) error, refused func(T, error)) error {
	count := 0
	var write func([]T) error
	write = func(items []T) error {
		if len(items) == 0 {
			return nil
		}
		err := f(items)
		if !db.mayBeOfOne(err) {
			return err
		}
		if len(items) > 1 {
			half := len(items) / 2
			if err := write(items[:half]); err != nil {
				return err
			}
			return write(items[half:])
		}
		refused(items[0], err)
		if count++; count == maxRefused {
			return err
		}
		return nil
	}
	return write(items)
}
