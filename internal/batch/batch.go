package batch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// batch is what one statement carries.
type batch[Q, A any] struct {
	calls  []*call[Q, A]
	lanes  []*lane[Q, A]
	others []*lane[Q, A] // of the other keys of its calls
	weight int
}

func (q *Queue[Q, A]) lane(req Q) *lane[Q, A] { return q.laneOf(q.o.Key(req)) }

func (q *Queue[Q, A]) laneOf(key string) *lane[Q, A] {
	l := q.lanes[key]
	if l == nil {
		l = &lane[Q, A]{key: key}
		q.lanes[key] = l
	}
	return l
}

// dropIdle drops an empty lane, so that the map holds only lanes in use.
func (q *Queue[Q, A]) dropIdle(l *lane[Q, A]) {
	if l.idle() && !l.ready {
		delete(q.lanes, l.key)
	}
}

// dispatch sends what can be sent now.
func (q *Queue[Q, A]) dispatch() {
	for len(q.ready) > 0 {
		if !q.mayBegin() {
			q.beginLater()
			return
		}
		b := q.nextBatch()
		if len(b.calls) == 0 {
			continue
		}
		q.begin()
		go q.execute(b)
	}
}

// mayBegin reports whether a statement may be sent now.
func (q *Queue[Q, A]) mayBegin() bool {
	return q.running == 0 || q.running < q.o.MaxInFlight && (q.o.Patience == 0 || time.Since(q.began) >= q.o.Patience)
}

func (q *Queue[Q, A]) begin() {
	q.running++
	if q.o.Patience > 0 {
		q.began = time.Now()
	}
}

// beginLater sends what waits when the last statement has been under way for long, should it still
// be.
func (q *Queue[Q, A]) beginLater() {
	if q.late != nil || q.running >= q.o.MaxInFlight {
		return
	}
	q.late = time.AfterFunc(q.o.Patience-time.Since(q.began), func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.late = nil
		q.dispatch()
	})
}

// offer adds a lane to those that a statement could take from.
func (q *Queue[Q, A]) offer(l *lane[Q, A]) {
	if !l.ready && l.mayBegin(q.o.PerKey) {
		l.ready = true
		q.ready = append(q.ready, l)
	}
}

// nextBatch takes the next batch off the ready lanes: the first lane, and further ones while they
// may share a statement with it.
func (q *Queue[Q, A]) nextBatch() batch[Q, A] {
	var b batch[Q, A]
	for range len(q.ready) {
		l := q.ready[0]
		q.ready = q.ready[1:]
		joins := slices.Contains(b.others, l) && !l.resting && !l.wanted && l.blocked == 0
		if l.live > 0 && len(b.calls) > 0 && !joins && l.bearsNoOther() {
			q.ready = append(q.ready, l) // its turn comes in a statement of its own
			continue
		}
		l.ready = false
		if l.live == 0 {
			q.dropIdle(l)
			continue
		}
		if !joins && !l.mayBegin(q.o.PerKey) { // a statement of its stands aside since it was offered
			continue
		}
		own := q.o.Apart || !joins && l.bearsNoOther()
		full := q.take(l, &b)
		if full && (len(b.lanes) == 0 || b.lanes[len(b.lanes)-1] != l) {
			l.ready = true
			q.ready = slices.Insert(q.ready, 0, l) // it is the first of the next statement
		}
		if own || full {
			break
		}
	}
	for _, l := range b.lanes {
		l.shared = len(b.lanes) > 1
		q.offer(l) // where it had more than fits, and may have another statement
	}
	return b
}

// take moves calls of a lane to a batch while they fit. It reports whether the batch is full.
func (q *Queue[Q, A]) take(l *lane[Q, A], b *batch[Q, A]) (full bool) {
	taken := 0
	for l.live > 0 && !full {
		if q.move(l) {
			continue
		}
		weight := q.o.Weight(l.head().req)
		if full = len(b.calls) >= q.maxBatch() || len(b.calls) > 0 && b.weight+weight > q.o.MaxWeight; full {
			break
		}
		if !q.reserve(l.head(), b) {
			break
		}
		b.weight += weight
		b.calls = append(b.calls, l.pop())
		taken++
	}
	if taken == 0 {
		q.dropIdle(l) // all of its calls have moved
	}
	if taken > 0 {
		l.carried()
		q.waiting -= taken
		b.lanes = append(b.lanes, l)
	}
	return full || len(b.calls) >= q.maxBatch()
}

// division is how a batch is sent: in one statement, or in parts after an error.
type division struct {
	sqlerr.Trial
	began   time.Time
	expired error // the time for what waits for locks is up: this is the error of all that are left
}

// execute runs one statement and hands out its results.
func (q *Queue[Q, A]) execute(b batch[Q, A]) {
	t := inFlight[Q, A]{q: q, lanes: b.lanes, others: b.others}
	skipped := q.run(withYielder(context.Background(), &t), q.inTime(b.calls), &division{began: time.Now()})
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range b.lanes {
		if len(skipped) == 0 {
			l.rests = 0
		}
	}
	q.requeue(skipped)
	q.settle(&t)
}

// settle notes that a statement has ended, and sends what waited for it.
func (q *Queue[Q, A]) settle(t *inFlight[Q, A]) {
	if t.aside {
		q.aside--
	} else {
		q.running--
	}
	for _, l := range t.all() {
		l.flying--
		if t.aside {
			l.blocked--
		}
	}
	q.unwant(t.lanes...)
	for _, l := range t.all() {
		q.offer(l)
		q.dropIdle(l)
	}
	t.others = nil
	q.dispatch()
	q.drained()
}

// run executes calls in one statement, or in several after an error that may be of some of them. It
// returns those that were skipped.
func (q *Queue[Q, A]) run(ctx context.Context, calls []*call[Q, A], d *division) (skipped []*call[Q, A]) {
	if len(calls) == 0 {
		return nil
	}
	reqs := make([]Q, len(calls))
	again := false
	for i, c := range calls {
		reqs[i] = c.req
		again = again || c.alone
	}
	results, err := []Result[A](nil), d.expired
	if err == nil {
		results, err = q.send(ctx, reqs, again)
	}
	switch {
	case err == nil && decides(results):
		d.Worked()
	case err == nil, d.expired != nil:
	case q.o.MaxWait > 0 && time.Since(d.began) >= q.o.MaxWait && q.o.Blocked(err):
		d.expired = err
	default:
		if from, to := d.Split(len(calls), q.o.Classify(err)); to > 0 {
			first, others := slices.Clone(calls[from:to]), slices.Concat(calls[:from], calls[to:])
			return append(q.run(ctx, first, d), q.run(ctx, others, d)...)
		}
	}
	for i, c := range calls {
		switch {
		case err != nil:
			q.deliver(c, Result[A]{Err: err})
		case !results[i].Alone:
			q.deliver(c, results[i])
		case q.isLate(c), c.alone && q.o.MaxWait == 0:
			q.deliver(c, Result[A]{Err: cmp.Or(results[i].Err, q.stayedLocked(c.lane.key))})
		case c.settled.Load(): // its caller has left, and nothing was decided
			q.deliver(c, Result[A]{Err: q.stayedLocked(c.lane.key)})
		default:
			c.behind, c.why = results[i].Behind, results[i].Err
			if c.since.IsZero() {
				c.since = d.began
			}
			skipped = append(skipped, c)
		}
	}
	return skipped
}

// isLate reports whether a call has waited for locks for MaxWait.
func (q *Queue[Q, A]) isLate(c *call[Q, A]) bool {
	return q.o.MaxWait > 0 && !c.since.IsZero() && time.Since(c.since) >= q.o.MaxWait
}

// inTime answers the calls that have waited for locks for too long. Other lanes were before theirs
// meanwhile.
func (q *Queue[Q, A]) inTime(calls []*call[Q, A]) []*call[Q, A] {
	return slices.DeleteFunc(calls, func(c *call[Q, A]) bool {
		late := c.alone && q.o.MaxWait > 0 && time.Since(c.since) >= q.o.MaxWait+longestRest
		if late {
			q.deliver(c, Result[A]{Err: cmp.Or(c.why, q.stayedLocked(c.lane.key))})
		}
		return late
	})
}

// decides reports whether any request is answered, and not to be asked again.
func decides[A any](results []Result[A]) bool {
	return slices.ContainsFunc(results, func(a Result[A]) bool { return !a.Alone })
}

// send runs one statement, and checks that it answers each request.
func (q *Queue[Q, A]) send(ctx context.Context, reqs []Q, again bool) ([]Result[A], error) {
	results, err := q.o.Run(ctx, reqs, again)
	if err == nil && len(results) != len(reqs) {
		err = fmt.Errorf("%w: the server sent %d answers to %d requests", dblock.ErrOutcomeUnknown, len(results), len(reqs))
	}
	return results, err
}

// requeue queues skipped calls again, at the head of the lane of the lock that they wait for. Each
// key then has a statement of its own. A lane rests if one of its calls was skipped before.
func (q *Queue[Q, A]) requeue(skipped []*call[Q, A]) {
	byLane := make(map[*lane[Q, A]][]*call[Q, A])
	for _, c := range skipped {
		if c.behind != "" {
			c.lane = q.laneOf(c.behind)
		}
		if c.alone {
			q.rest(c.lane)
		}
		c.sent, c.alone = false, true
		byLane[c.lane] = append(byLane[c.lane], c)
	}
	for l, calls := range byLane {
		l.unshift(calls)
		q.offer(l)
	}
	q.waiting += len(skipped)
}

const (
	firstRest   = 10 * time.Millisecond
	longestRest = 250 * time.Millisecond
)

// rest has a lane wait before its next statement, twice as long each time.
func (q *Queue[Q, A]) rest(l *lane[Q, A]) {
	if l.resting {
		return
	}
	l.resting = true
	pause := min(longestRest, firstRest<<min(l.rests, 10))
	l.rests++
	time.AfterFunc(pause, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		l.resting = false
		q.offer(l)
		q.dropIdle(l)
		q.dispatch()
	})
}

func (q *Queue[Q, A]) stayedLocked(key string) error {
	return fmt.Errorf("%w: %s stayed locked; nothing was written", dblock.ErrBusy, q.o.Name(key))
}
