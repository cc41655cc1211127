package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

const (
	firstPass   = time.Second // it doubles each time
	longestPass = time.Minute
	maxPassed   = 1000 // jobs, or groups, that are passed over at once
)

// passed is the jobs, or groups, that are passed over for a while, because the server refused a
// statement of theirs. For claims, a job whose time is up is on trial: one claim does not pass over
// it.
type passed[T comparable] map[T]pass

// pass is how one is passed over.
type pass struct {
	times int
	until time.Time
}

// add passes over one: for longer each time, up to longestPass.
func (p passed[T]) add(one T, now time.Time) {
	times := p[one].times
	p[one] = pass{times + 1, now.Add(pace.Jitter(min(firstPass<<min(times, 10), longestPass)))}
}

// tryAll has the time of all be up: what refused them may have ended.
func (p passed[T]) tryAll(now time.Time) {
	for one, its := range p {
		p[one] = pass{its.times, now}
	}
}

// next is what the next claim passes over, and the job that is on trial with it: the suspect, if
// there is one, or any whose time is up. No other claim tries that one meanwhile.
func (p passed[T]) next(now time.Time, suspect T, tries bool) (not []T, trial T) {
	var none T
	for one, its := range p {
		if one == suspect || suspect == none && tries && trial == none && !its.until.After(now) {
			trial = one
			p[one] = pass{its.times, now.Add(longestPass)}
			continue
		}
		not = append(not, one)
	}
	return not, trial
}

// now is all that are passed over now. What was refused long ago is forgotten.
func (p passed[T]) now(now time.Time) map[T]bool {
	all := make(map[T]bool)
	for one, its := range p {
		switch {
		case its.until.After(now):
			all[one] = true
		case now.Sub(its.until) > longestPass:
			delete(p, one)
		}
	}
	return all
}

// mayBeOfOne reports whether one of several items may have caused an error. One for which time ran
// out is not of one: there may have been no connection.
func (s *statements) mayBeOfOne(err error) bool {
	return err != nil && s.classify(err).MayBeOfOne() && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

// refusal is the error of the first of some items that the server refused alone. locked is that of
// one that was locked, if no item was written.
type refusal struct{ err, locked error }

func (r refusal) any() error { return cmp.Or(r.err, r.locked) }

// add notes the error of a job.
func (r *refusal) add(job driver.ID, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("%w (job %v)", err, ID(job))
	}
}

// inParts has f write items together. If the server refuses them, and one of them may be to blame,
// f gets parts of them: see sqlerr.Trial. So an item that is refused stops no other. It calls
// refused for each that is refused alone. It returns errors of that, and those of all items.
func inParts[T any](db *statements, items []T, f func([]T) error, refused func(T, error) error) error {
	var trial sqlerr.Trial
	var write func([]T) error
	write = func(items []T) error {
		if len(items) == 0 {
			return nil
		}
		err := f(items)
		switch {
		case err == nil:
			trial.Worked()
			return nil
		case !db.mayBeOfOne(err):
			return err
		}
		from, to := trial.Split(len(items), db.classify(err))
		switch {
		case len(items) == 1:
			return refused(items[0], err)
		case from == to:
			return err
		}
		if err := write(items[from:to]); err != nil {
			return err
		}
		return write(slices.Concat(items[:from], items[to:]))
	}
	return write(items)
}
