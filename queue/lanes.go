package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/merge"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// Tasks with keys are enqueued in statements of their own, beside those of tasks without keys. Such a statement waits only briefly for the
// row of a unique key or a group. If another transaction has the row locked, the calls are divided by their keys until those of the locked
// key are apart. They wait in the lane of that key, and so do calls with the same key that come later. One statement a lane waits on the
// server; if too many lanes wait, the lane asks again from time to time.
const (
	keyedInFlight = 2
	keyedWaiters  = 2       // statements that wait on the server
	keyedWeight   = 1 << 20 // bytes in one statement

	keyWait      = 2 * time.Millisecond // how long a statement of several keys waits for one of them
	keyWaitAgain = 5 * time.Millisecond // and one that asks again
)

// keyedCall is tasks of one caller, of which some have keys.
type keyedCall struct {
	jobs []engine.Insert
	lane string // of a key that is known to be locked; empty: none is
}

func (q *Queue) newKeyed() *merge.Queue[keyedCall, []engine.Duplicate] {
	return merge.New(merge.Options[keyedCall, []engine.Duplicate]{
		Run:    q.insertKeyed,
		Key:    func(c keyedCall) string { return c.lane },
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

// keyedAnswer is a call, and what became of it.
type keyedAnswer struct {
	keyedCall
	merge.Answer[[]engine.Duplicate]
}

// insertKeyed enqueues the tasks of several callers: in one statement, if no key is locked and the server refuses none.
func (q *Queue) insertKeyed(ctx context.Context, calls []keyedCall, again bool) ([]merge.Answer[[]engine.Duplicate], error) {
	wait := keyWait
	if again {
		wait = keyWaitAgain
		if merge.StandAside(ctx) {
			wait = 0
		}
	}
	all, open := make([]keyedAnswer, len(calls)), make([]*keyedAnswer, 0, len(calls))
	for i, c := range calls {
		all[i].keyedCall = c
		if lane := c.behind(); !again && len(calls) > 1 && q.keyed.IsBlocked(lane) { // since the call came
			all[i].waits()
			continue
		}
		open = append(open, &all[i])
	}
	q.insertCalls(ctx, open, wait)
	answers := make([]merge.Answer[[]engine.Duplicate], len(calls))
	for i := range all {
		answers[i] = all[i].Answer
	}
	return answers, nil
}

// insertCalls runs one statement, and more if that fails because of some of the calls.
func (q *Queue) insertCalls(ctx context.Context, calls []*keyedAnswer, wait time.Duration) {
	if len(calls) == 0 {
		return
	}
	jobs := calls[0].jobs
	if len(calls) > 1 {
		jobs = nil
		for _, c := range calls {
			jobs = append(jobs, c.jobs...)
		}
	}
	dups, err := q.insert(ctx, jobs, wait)
	var locked *keyLockedError
	isLocked := errors.As(err, &locked)
	switch {
	case err != nil && len(calls) > 1 && (isLocked || q.fault(err) == fault.Poison):
		slices.SortStableFunc(calls, func(a, b *keyedAnswer) int { return cmp.Compare(a.behind(), b.behind()) })
		half := divide(calls, isLocked)
		if half == len(calls) {
			for _, c := range calls {
				c.waits()
			}
			return
		}
		q.insertCalls(ctx, calls[:half], wait)
		q.insertCalls(ctx, calls[half:], wait)
	case isLocked:
		calls[0].waits()
	default:
		for _, c := range calls {
			c.Value, c.Err = dups, err // each looks for its own duplicates
		}
	}
}

// divide returns where calls are divided, which are sorted by their lanes: in the middle, or beside it, so that calls stay together that
// only have the same key. It returns their number if they all do.
func divide(calls []*keyedAnswer, byKey bool) int {
	half := len(calls) / 2
	if !byKey {
		return half
	}
	for i := range len(calls) {
		at := half - i/2 // beside the middle, on either side in turn
		if i%2 == 1 {
			at = half + i/2 + 1
		}
		if at > 0 && at < len(calls) && (calls[at-1].behind() != calls[at].behind() || !calls[at].hasOneKey() || !calls[at-1].hasOneKey()) {
			return at
		}
	}
	return len(calls)
}

// waits has a call wait in the lane of its key.
func (c *keyedAnswer) waits() { c.Alone, c.Behind = true, c.behind() }

// hasOneKey tells that all tasks of the call have the same key and no other.
func (c *keyedCall) hasOneKey() bool {
	lane := laneOf(&c.jobs[0])
	return !slices.ContainsFunc(c.jobs, func(j engine.Insert) bool {
		return laneOf(&j) != lane || j.Unique != "" && j.Group != ""
	})
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
