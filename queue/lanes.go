package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// Tasks with keys are enqueued in statements of their own, beside those of tasks without keys. Such
// a statement waits only briefly for the row of a unique key or a group. If another transaction has
// the row locked, the calls are divided by their keys until those of the locked key are apart. They
// wait in the lane of that key, and so do calls with the same key that come later. One statement a
// lane waits on the server; if too many lanes wait, the lane asks again from time to time.
//
// A statement of tasks without keys may wait, too: for what a trigger or an index of the host's
// needs, or if another transaction has locked the rows of a queue. Then the calls for each queue
// are sent in statements of their own. A queue of which one waits is stuck: its calls are sent
// apart from those of others for a while. There the last few that wait are in lanes of their own. A
// call for several queues does not say which of them is stuck: only calls for exactly the same
// ones, and those for one that is stuck, are sent apart.
//
// A statement that has met conflicts several times counts as one that has met a locked row. Its
// parts are sent once each. A call that is left alone meets conflicts in its lane until its tries
// or its time are up. Its statements are sent once, too, as those of others wait for them: the lane
// rests between them.
//
// A call of several keys waits in a lane of its own, beside calls of exactly the same keys. Its
// statement locks some of its keys before it meets the locked one. So it never waits on the server,
// but asks again from time to time. Two such statements of a process have no group in common,
// unless one is slow.
const (
	inFlight      = 2       // statements with keys, and as many without
	largeInFlight = 4       // those that no calls share
	keyedWaiters  = 2       // statements with keys that wait on the server
	plainWaiters  = 2       // those without
	keyedWeight   = 1 << 20 // bytes in one statement

	keyWait      = 2 * time.Millisecond // how long a statement of several keys waits for one of them
	keyWaitAgain = 5 * time.Millisecond // and one that asks again

	// How long a statement without keys waits. MySQL can't bound it below a second; MariaDB's does
	// not wait.
	plainWait = 50 * time.Millisecond
)

// noLane is the lane of calls that lock no key.
const noLane = "none"

// keyedCall is tasks of one caller, of which some may have keys.
type keyedCall struct {
	jobs    []driver.Insert
	lane    string   // of its key, or of all its keys
	several bool     // keys
	locked  bool     // one of its keys is known to be
	groups  []string // the lanes of its groups, if it has several keys
}

const groupLanes = "group "

// newKeyedCall makes a call, and returns the lane of each of its keys.
func newKeyedCall(jobs []driver.Insert) (c keyedCall, lanes []string) {
	for i := range jobs {
		if i == 0 || jobs[i].Queue != jobs[i-1].Queue || jobs[i].Unique != "" || jobs[i].Group != jobs[i-1].Group || jobs[i-1].Delay > 0 {
			lanes = appendLanes(lanes, &jobs[i])
		}
	}
	slices.Sort(lanes)
	lanes = slices.Compact(lanes)
	c = keyedCall{jobs: jobs, lane: noLane, several: len(lanes) > 1}
	switch len(lanes) {
	case 0:
	case 1:
		c.lane = lanes[0]
	default:
		c.lane = fmt.Sprintf("%s, or one of %d more (%x),", lanes[0], len(lanes)-1, sha256.Sum256([]byte(strings.Join(lanes, "\x00\x00"))))
		for _, lane := range lanes {
			if strings.HasPrefix(lane, groupLanes) {
				c.groups = append(c.groups, lane)
			}
		}
	}
	return c, lanes
}

// appendLanes adds the lanes of the keys whose rows the enqueuing of a job locks. A job for later
// locks no group.
func appendLanes(lanes []string, j *driver.Insert) []string {
	if j.Unique != "" {
		lanes = append(lanes, fmt.Sprintf("unique key %q of queue %q", j.Unique, j.Queue))
	}
	if j.Group != "" && j.Delay == 0 {
		lanes = append(lanes, fmt.Sprintf(groupLanes+"%q of queue %q", j.Group, j.Queue))
	}
	return lanes
}

// makeQueues makes the queues of calls. Options.Timeout begins when a call is first sent.
func (e *enqueuer) makeQueues() {
	options := func(maxBatch, inFlight, waiters int) batch.Options[keyedCall, []driver.Duplicate] {
		return batch.Options[keyedCall, []driver.Duplicate]{
			Run: e.insertLanes, Key: keyedCall.key, MaxBatch: maxBatch, MaxQueue: e.o.MaxQueue, PerKey: inFlight, MaxInFlight: inFlight,
			Name: func(lane string) string { return lane }, Apart: true, Waiters: waiters, MaxWait: e.o.Timeout,
		}
	}
	plain, large := options(maxMerged, inFlight, plainWaiters), options(1, largeInFlight, plainWaiters)
	plain.Run, large.Run = e.insertPlain, e.insertPlain
	e.plain, e.large = batch.New(plain), batch.New(large)
	apart, keyed := options(maxMerged, inFlight, plainWaiters), options(maxMerged, inFlight, keyedWaiters)
	for _, o := range []*batch.Options[keyedCall, []driver.Duplicate]{&apart, &keyed} {
		o.Weight, o.MaxWeight = func(c keyedCall) int { return weight(c.jobs) }, keyedWeight
	}
	e.apart = batch.New(apart)
	keyed.Others = func(c keyedCall) []string { return c.groups }
	e.keyed = batch.New(keyed)
}

// keyLockedError is how a statement ends that did not wait for a locked key, or did not repeat
// itself after conflicts.
type keyLockedError struct {
	error
	conflict bool
}

func (e *keyLockedError) Unwrap() error { return e.error }

// keyedResult is a call, and what became of it.
type keyedResult struct {
	keyedCall
	batch.Result[[]driver.Duplicate]
}

// errStuck says that nothing was written of a call without keys, and that it is to be sent apart:
// its queue is stuck.
var errStuck = errors.New("a queue is stuck")

// insertLanes enqueues the tasks of several callers: in one statement, if no key is locked and the
// server refuses none. Calls that find a row locked wait in lanes.
func (e *enqueuer) insertLanes(ctx context.Context, calls []keyedCall, again bool) ([]batch.Result[[]driver.Duplicate], error) {
	return e.insertAll(ctx, calls, again, &insertion{began: time.Now()})
}

// insertPlain is insertLanes for calls without keys of queues that are not known to be stuck. Those
// that find a row locked are sent apart.
func (e *enqueuer) insertPlain(ctx context.Context, calls []keyedCall, again bool) ([]batch.Result[[]driver.Duplicate], error) {
	return e.insertAll(ctx, calls, again, &insertion{began: time.Now(), plain: true})
}

func (e *enqueuer) insertAll(
	ctx context.Context, calls []keyedCall, again bool, in *insertion,
) ([]batch.Result[[]driver.Duplicate], error) {
	wait := keyWait
	switch {
	case again && !calls[0].several && batch.Yield(ctx):
		wait = 0
	case again:
		wait, in.met = keyWaitAgain, true // the pauses of the lane are those between its tries
	case !slices.ContainsFunc(calls, func(c keyedCall) bool { return c.lane != noLane }):
		wait = plainWait
	}
	all, open := make([]keyedResult, len(calls)), make([]*keyedResult, 0, len(calls))
	for i, c := range calls {
		all[i].keyedCall = c
		if !again && len(calls) > 1 && e.keyed.IsBlocked(c.lane) { // since the call came
			all[i].waits()
			continue
		}
		open = append(open, &all[i])
	}
	e.insertCalls(ctx, open, wait, in)
	results := make([]batch.Result[[]driver.Duplicate], len(calls))
	for i := range all {
		results[i] = all[i].Result
	}
	return results, nil
}

// insertion is what the statements for a batch have in common.
type insertion struct {
	sqlerr.Trial
	began time.Time
	plain bool // calls that find a row locked are to be sent apart

	// No statement is repeated after a conflict: one has met conflicts again and again, or all are
	// for calls of a lane.
	met bool

	took time.Duration // by the last statement that found a row locked
	busy error         // of one that has waited for the key of all: no other one waits as long
}

// tries is how often a statement is sent that meets conflicts.
func (in *insertion) tries() int {
	if in.met {
		return 1
	}
	return batchTries
}

// insertCalls runs one statement, and more if that fails because of some of the calls.
func (e *enqueuer) insertCalls(ctx context.Context, calls []*keyedResult, wait time.Duration, in *insertion) {
	if len(calls) == 0 {
		return
	}
	if in.busy != nil {
		for _, c := range calls {
			c.Err = in.busy
		}
		return
	}
	jobs := calls[0].jobs
	if len(calls) > 1 {
		jobs = nil
		for _, c := range calls {
			jobs = append(jobs, c.jobs...)
		}
	}
	sent := time.Now()
	dups, err := e.insert(ctx, jobs, wait, in.tries())
	var locked *keyLockedError
	isLocked := errors.As(err, &locked)
	if isLocked {
		in.met, in.took = in.met || locked.conflict, time.Since(sent)
	}
	from, to := 0, 0
	switch {
	case err == nil:
		in.Worked()
	case isLocked && hasKeys(calls):
		slices.SortStableFunc(calls, func(a, b *keyedResult) int { return cmp.Compare(a.needs(), b.needs()) })
		if to = divide(calls); to == len(calls) {
			for _, c := range calls {
				c.waits()
				c.Err = e.whyLocked(locked)
			}
			return
		}
	case isLocked:
		e.insertApart(ctx, calls, wait, in, e.whyLocked(locked))
		return
	case wait == 0 && e.db.classify(err) == sqlerr.Busy:
		in.busy = err
	default:
		from, to = in.Split(len(calls), e.db.classify(err))
	}
	if to > 0 {
		e.insertCalls(ctx, slices.Clone(calls[from:to]), wait, in)
		e.insertCalls(ctx, slices.Concat(calls[:from], calls[to:]), wait, in)
		return
	}
	for _, c := range calls {
		c.Value, c.Err = dups, err // each looks for its own duplicates
	}
}

// insertApart enqueues tasks without keys after a statement for all of them that waited: those for
// each queue in statements of their own. If all are for one queue, that is stuck: they are divided
// until a few wait in lanes of their own.
func (e *enqueuer) insertApart(ctx context.Context, calls []*keyedResult, wait time.Duration, in *insertion, why error) {
	one := calls[0].needs()
	if slices.ContainsFunc(calls, func(c *keyedResult) bool { return c.needs() != one }) {
		for _, c := range ofEachQueue(calls, (*keyedResult).needs, e.o.Timeout, func(_ string, calls []*keyedResult) {
			e.insertCalls(ctx, calls, wait, &insertion{began: in.began, plain: in.plain, met: in.met})
		}) {
			c.isStuck(in, why)
		}
		return
	}
	e.stuck.add(one, in.took)
	if half := len(calls) / 2; !in.plain && len(calls) > lastFew && time.Since(in.began) < e.o.Timeout {
		e.insertCalls(ctx, calls[:half], wait, in)
		e.insertCalls(ctx, calls[half:], wait, in)
		return
	}
	for _, c := range calls {
		c.isStuck(in, why)
	}
}

// lastFew is how many calls without keys are sent one by one, if one of them waits: to divide them
// costs more where a wait can't be bounded below a second.
const lastFew = 16

func hasKeys(calls []*keyedResult) bool {
	return slices.ContainsFunc(calls, func(c *keyedResult) bool { return c.lane != noLane })
}

// needs is what a call may wait for: its keys, or else the rows of the queues of its tasks.
func (c keyedCall) needs() string {
	if c.lane != noLane {
		return c.lane
	}
	queue := c.jobs[0].Queue
	isOther := func(j driver.Insert) bool { return j.Queue != queue }
	if !slices.ContainsFunc(c.jobs, isOther) {
		return queue
	}
	all := make(map[string]bool)
	for i := range c.jobs {
		all[c.jobs[i].Queue] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(all)), "\x00")
}

// divide returns where calls are divided, which are sorted by what they need: in the middle, or
// beside it, so that calls stay together that need the same. It returns their number if they all
// do.
func divide(calls []*keyedResult) int {
	half := len(calls) / 2
	for i := range len(calls) {
		at := half - i/2 // beside the middle, on either side in turn
		if i%2 == 1 {
			at = half + i/2 + 1
		}
		if at > 0 && at < len(calls) && calls[at-1].needs() != calls[at].needs() {
			return at
		}
	}
	return len(calls)
}

// waits has a call wait in its lane. One without keys gets a lane of its own.
func (c *keyedResult) waits() {
	if c.lane == noLane {
		c.lane = fmt.Sprintf("a row that job %s needs", ID(c.jobs[0].ID))
	}
	c.Alone, c.Behind = true, c.lane
}

// isStuck has a call without keys wait: in its lane, or apart.
func (c *keyedResult) isStuck(in *insertion, why error) {
	if in.plain {
		c.Err = errStuck
	} else {
		c.waits()
		c.Err = why
	}
}

// whyLocked is the error of a call that waited for too long, if it is known.
func (e *enqueuer) whyLocked(err *keyLockedError) error {
	if !err.conflict {
		return nil
	}
	return e.db.explain(err.error, "enqueuing")
}

// severalLane is the lane of calls of several keys that need not wait.
const severalLane = "several"

// key is the lane of a call that has to wait; empty: it need not.
func (c keyedCall) key() string {
	switch {
	case c.locked:
		return c.lane
	case c.several:
		return severalLane
	}
	return ""
}
