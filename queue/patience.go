package queue

import (
	"cmp"
	"context"
	"time"
)

// patiently is within for statements that may have to pass over many rows that were deleted, and which the server can't clean up yet. One
// that was cut off has twice the time when it is sent again, up to mostPatience: else it would be cut off each time.
func (q *Queue) patiently(ctx context.Context, doing string, f func(context.Context) error) error {
	_, err := q.cutOff(ctx, doing, f)
	return err
}

// cutOff is patiently. It returns whether the statement was cut off. One that waited for a connection of an exhausted pool was not: more
// time would not help it.
func (q *Queue) cutOff(ctx context.Context, doing string, f func(context.Context) error) (cut bool, err error) {
	patience := q.patienceFor(doing)
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	err = f(within)
	cut = err != nil && ctx.Err() == nil && within.Err() != nil && !q.driver.Exhausted()
	switch {
	case err == nil:
		patience = 2 * time.Since(began)
	case cut:
		patience *= 2
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.patience[doing] = min(patience, q.mostPatience())
	return cut, err
}

// patienceFor returns how long a statement may take.
func (q *Queue) patienceFor(doing string) time.Duration {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return max(q.patience[doing], q.o.Timeout)
}

// mostPatience returns how long a statement may take at most.
func (q *Queue) mostPatience() time.Duration { return max(mostPatience, q.o.Timeout) }

// step is how large the next statement is of those that do the same.
type step struct {
	rows  int
	least time.Duration // what one has taken at least since the last that was cut off
}

// step returns how many rows a statement takes: at most most.
func (q *Queue) step(doing string, most int) int {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return min(cmp.Or(q.steps[doing].rows, most), most)
}

// stepped notes how long a statement of n rows took. If it was cut off the next one takes half as many rows. It takes twice as many if this
// one was quick, or took no longer than others of fewer rows: then it is not its rows that take long.
func (q *Queue) stepped(doing string, n int, took time.Duration, cut bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if cut {
		q.steps[doing] = step{rows: max(n/2, 1)}
		return
	}
	least := min(cmp.Or(q.steps[doing].least, took), took)
	if took < q.o.Timeout/4 || took < least+least/2 {
		n *= 2
	}
	q.steps[doing] = step{n, least}
}

// inSteps is again for a statement of many rows: at most most. One that is cut off is repeated for half as many rows, as each may take
// long, and with twice the time, as what it passes over may take long. If it is cut off after mostPatience it is not repeated.
func (q *Queue) inSteps(ctx context.Context, doing string, most int, f func(ctx context.Context, n int) error) error {
	for {
		n, patience, began := q.step(doing, most), q.patienceFor(doing), time.Now()
		cut, err := q.cutOff(ctx, doing, func(ctx context.Context) error {
			return q.repeat(ctx, doing, func(ctx context.Context) error { return f(ctx, n) })
		})
		if err == nil || cut {
			q.stepped(doing, n, time.Since(began), cut)
		}
		if !cut || patience >= q.mostPatience() {
			return err
		}
	}
}
