package queue

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/merge"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// Tasks with keys are enqueued in statements of their own, beside those of tasks without keys. Such a statement waits only briefly for the
// row of a unique key or a group. If another transaction has the row locked, the batch is halved until the call that needs the row is
// alone. That call waits in the lane of its key, and so do calls with the same key that come later. One statement a lane waits on the
// server; if too many lanes wait, the lane asks again from time to time.
const (
	keyedInFlight = 2
	keyedWaiters  = 2       // statements that wait on the server
	keyedWeight   = 1 << 20 // bytes in one statement

	keyWait      = 50 * time.Millisecond // how long a statement of several keys waits for one of them
	keyWaitAgain = 5 * time.Millisecond  // and one that asks again
)

// keyedCall is tasks of one caller, of which some have keys.
type keyedCall struct {
	jobs []engine.Insert
	lane string // of a key that is known to be locked; empty: none is
}

func (q *Queue) newKeyed() *merge.Queue[keyedCall, []engine.Duplicate] {
	return merge.New(merge.Options[keyedCall, []engine.Duplicate]{
		Run: q.insertKeyed,
		Key: func(c keyedCall) string { return c.lane },
		Poison: func(err error) bool {
			var locked *keyLockedError
			return errors.As(err, &locked) || q.fault(err) == fault.Poison
		},
		Weight: func(c keyedCall) int { return weight(c.jobs) }, MaxWeight: keyedWeight,
		MaxBatch: maxMerged, MaxQueue: q.o.MaxQueue, PerKey: keyedInFlight, MaxInFlight: keyedInFlight, Apart: true,
		Waiters: keyedWaiters, MaxWait: q.o.Timeout,
	})
}

// keyLockedError is how a statement ends that did not wait for a locked key.
type keyLockedError struct{ error }

func (e *keyLockedError) Unwrap() error { return e.error }

// enqueueKeyed enqueues tasks of one caller.
func (q *Queue) enqueueKeyed(ctx context.Context, jobs []engine.Insert) ([]engine.Duplicate, error) {
	c := keyedCall{jobs: jobs}
	for i := range jobs {
		if lane := laneOf(&jobs[i]); lane != "" && q.keyed.IsBlocked(lane) {
			c.lane = lane
			break
		}
	}
	return q.keyed.Do(ctx, c)
}

// insertKeyed runs one statement for several callers.
func (q *Queue) insertKeyed(ctx context.Context, calls []keyedCall, again bool) ([]merge.Answer[[]engine.Duplicate], error) {
	wait := keyWait
	if again {
		wait = keyWaitAgain
		if merge.StandAside(ctx) {
			wait = 0
		}
	}
	jobs := calls[0].jobs
	if len(calls) > 1 {
		jobs = nil
		for _, c := range calls {
			jobs = append(jobs, c.jobs...)
		}
	}
	dups, err := q.insert(ctx, jobs, wait)
	answers := make([]merge.Answer[[]engine.Duplicate], len(calls))
	var locked *keyLockedError
	if errors.As(err, &locked) && len(calls) == 1 {
		answers[0] = merge.Answer[[]engine.Duplicate]{Alone: true, Behind: calls[0].behind()}
		return answers, nil
	}
	for i := range answers {
		answers[i].Value = dups // each looks for its own
	}
	return answers, err
}

// behind is the lane in which a call waits: it is not known which of its keys is locked, so that it is that of the first.
func (c *keyedCall) behind() string {
	if c.lane != "" {
		return c.lane
	}
	for i := range c.jobs {
		if lane := laneOf(&c.jobs[i]); lane != "" {
			return lane
		}
	}
	return ""
}

// laneOf is the lane of a job's key; empty: it has none.
func laneOf(j *engine.Insert) string {
	switch {
	case j.Unique != "":
		return "unique\x00" + j.Queue + "\x00" + j.Unique
	case j.Group != "":
		return "group\x00" + j.Queue + "\x00" + j.Group
	}
	return ""
}
