package queue

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// statements bounds the statements of a driver: their time, how often they are repeated after
// conflicts, and how many rows they take.
type statements struct {
	driver  driver.Driver
	timeout time.Duration // Options.Timeout

	mu       sync.Mutex
	patience map[string]time.Duration // of those that pass over many rows, by what they do: see patiently
	steps    map[string]step          // of those of many rows, by what they do: see inSteps
}

func newStatements(d driver.Driver, timeout time.Duration) *statements {
	return &statements{driver: d, timeout: timeout, patience: make(map[string]time.Duration), steps: make(map[string]step)}
}

// classify is the driver's, but for errors that are this package's own.
func (s *statements) classify(err error) sqlerr.Class {
	if errors.Is(err, dblock.ErrClosed) || errors.Is(err, dblock.ErrInvalid) {
		return sqlerr.Unclassified
	}
	return s.driver.Classify(err)
}

// explain puts an error of the driver into dblock's words.
func (s *statements) explain(err error, what string) error {
	return sqlerr.Wrap(s.classify(err), err, what, "no answer came")
}

// gaveWay reports that the end of a job failed because others have rows locked. It was to wait for
// them briefly only.
func (s *statements) gaveWay(err error) bool {
	if err == nil {
		return false
	}
	is := s.classify(sqlerr.Unwritten(err))
	return is == sqlerr.Retryable || is == sqlerr.Busy || s.driver.IsLocked(err)
}

// within bounds the time of f.
func (s *statements) within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return f(ctx)
}

// again runs what may be run twice, within its time, once more after conflicts.
func (s *statements) again(ctx context.Context, what string, f func(context.Context) error) error {
	return s.within(ctx, func(ctx context.Context) error { return s.repeat(ctx, what, f) })
}

// repeat runs what may be run twice once more after conflicts.
func (s *statements) repeat(ctx context.Context, what string, f func(context.Context) error) error {
	if ctx.Err() != nil {
		return sqlerr.NotSent(ctx)
	}
	for n := 1; ; n++ {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if n == insertTries || s.classify(err) != sqlerr.Retryable {
			return s.explain(err, what)
		}
	}
}

// patiently is within for statements that may have to pass over many rows that were deleted, and
// which the server can't clean up yet. One that was cut off has twice the time when it is sent
// again, up to maxPatience: else it would be cut off each time.
func (s *statements) patiently(ctx context.Context, doing string, f func(context.Context) error) error {
	_, err := s.cutOff(ctx, doing, f)
	return err
}

// cutOff is patiently. It returns whether the statement was cut off. One that waited for a
// connection of an exhausted pool was not: more time would not help it.
func (s *statements) cutOff(ctx context.Context, doing string, f func(context.Context) error) (cut bool, err error) {
	patience := s.patienceFor(doing)
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	err = f(within)
	cut = err != nil && ctx.Err() == nil && within.Err() != nil && !s.driver.Exhausted()
	switch {
	case err == nil:
		patience = 2 * time.Since(began)
	case cut:
		patience *= 2
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patience[doing] = min(patience, s.maxPatience())
	return cut, err
}

// patienceFor returns how long a statement may take.
func (s *statements) patienceFor(doing string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.patience[doing], s.timeout)
}

// maxPatience returns how long a statement may take at most.
func (s *statements) maxPatience() time.Duration { return max(maxPatience, s.timeout) }

// step is how large the next statement is of those that do the same.
type step struct {
	rows  int
	least time.Duration // what one has taken at least since the last that was cut off
}

// step returns how many rows a statement takes: at most most.
func (s *statements) step(doing string, most int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(cmp.Or(s.steps[doing].rows, most), most)
}

// stepped notes how long a statement of n rows took. If it was cut off the next one takes half as
// many rows. It takes twice as many if this one was quick, or took no longer than others of fewer
// rows: then it is not its rows that take long.
func (s *statements) stepped(doing string, n int, took time.Duration, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cut {
		s.steps[doing] = step{rows: max(n/2, 1)}
		return
	}
	least := min(cmp.Or(s.steps[doing].least, took), took)
	if took < s.timeout/4 || took < least+least/2 {
		n *= 2
	}
	s.steps[doing] = step{n, least}
}

// inSteps is again for a statement of many rows: at most most. One that is cut off is repeated for
// half as many rows, as each may take long, and with twice the time, as what it passes over may
// take long. If it is cut off after maxPatience it is not repeated.
func (s *statements) inSteps(ctx context.Context, doing string, most int, f func(ctx context.Context, n int) error) error {
	for {
		n, patience, began := s.step(doing, most), s.patienceFor(doing), time.Now()
		cut, err := s.cutOff(ctx, doing, func(ctx context.Context) error {
			return s.repeat(ctx, doing, func(ctx context.Context) error { return f(ctx, n) })
		})
		if err == nil || cut {
			s.stepped(doing, n, time.Since(began), cut)
		}
		if !cut || patience >= s.maxPatience() {
			return err
		}
	}
}
