package merge

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
)

// batch is what one statement carries.
type batch[Q, A any] struct {
	calls []*call[Q, A]
	lanes []*lane[Q, A]
}

func (q *Queue[Q, A]) lane(req Q) *lane[Q, A] {
	key := q.o.Key(req)
	l := q.lanes[key]
	if l == nil {
		l = &lane[Q, A]{key: key}
		q.lanes[key] = l
	}
	return l
}

// forget drops a lane that nobody needs, so that the map holds only what is under way.
func (q *Queue[Q, A]) forget(l *lane[Q, A]) {
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
		b := q.form()
		if len(b.calls) == 0 {
			continue
		}
		q.begin()
		go q.execute(b)
	}
}

// mayBegin tells whether a statement may be sent now.
func (q *Queue[Q, A]) mayBegin() bool {
	return q.running == 0 || q.running < q.o.MaxInFlight && (q.o.Patience == 0 || time.Since(q.began) >= q.o.Patience)
}

func (q *Queue[Q, A]) begin() {
	q.running++
	if q.o.Patience > 0 {
		q.began = time.Now()
	}
}

// beginLater sends what waits when the last statement has been under way for long, should it still be.
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

// offer puts a lane into the line of those that a statement could take from.
func (q *Queue[Q, A]) offer(l *lane[Q, A]) {
	if !l.ready && l.live > 0 && (l.flying == 0 || l.flying < q.o.PerKey && !l.beside) {
		l.ready = true
		q.ready = append(q.ready, l)
	}
}

// form takes the next batch off the ready lanes: the first lane, and further ones while they may
// share a statement with it.
func (q *Queue[Q, A]) form() batch[Q, A] {
	var b batch[Q, A]
	for range len(q.ready) {
		l := q.ready[0]
		q.ready = q.ready[1:]
		if l.live > 0 && len(b.calls) > 0 && l.bearsNoOther() {
			q.ready = append(q.ready, l) // its turn comes in a statement of its own
			continue
		}
		l.ready = false
		if l.live == 0 {
			q.forget(l)
			continue
		}
		own := l.bearsNoOther()
		before := len(b.calls)
		b.calls = l.take(q.o.MaxBatch-before, b.calls)
		l.flying++
		q.waiting -= len(b.calls) - before
		b.lanes = append(b.lanes, l)
		if own || len(b.calls) == q.o.MaxBatch {
			break
		}
	}
	for _, l := range b.lanes {
		l.beside = len(b.lanes) > 1
		q.offer(l) // where it had more than fits, and may have another statement
	}
	return b
}

// execute runs one statement and hands out its answers.
func (q *Queue[Q, A]) execute(b batch[Q, A]) {
	skipped := q.run(b.calls)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.putBack(skipped)
	q.settle(b.lanes...)
}

// settle notes that a statement has ended, and sends what waited for it.
func (q *Queue[Q, A]) settle(lanes ...*lane[Q, A]) {
	q.running--
	for _, l := range lanes {
		l.flying--
		q.offer(l)
		q.forget(l)
	}
	q.dispatch()
	q.drained()
}

// run executes calls in one statement, or, when one of them poisons it, in halves. It returns
// those that were skipped.
func (q *Queue[Q, A]) run(calls []*call[Q, A]) (skipped []*call[Q, A]) {
	reqs := make([]Q, len(calls))
	again := false
	for i, c := range calls {
		reqs[i] = c.req
		again = again || c.alone
	}
	answers, err := q.o.Run(context.Background(), reqs, again)
	if err != nil && len(calls) > 1 && q.o.Poison(err) {
		half := len(calls) / 2
		return append(q.run(calls[:half]), q.run(calls[half:])...)
	}
	if err == nil && len(answers) != len(calls) {
		panic(fmt.Sprintf("merge: %d answers to %d requests", len(answers), len(calls)))
	}
	for i, c := range calls {
		switch {
		case err != nil:
			c.answer <- Answer[A]{Err: err}
		case !answers[i].Alone:
			c.answer <- answers[i]
		case c.alone:
			c.answer <- Answer[A]{Err: stayedLocked(c.lane.key)}
		default:
			skipped = append(skipped, c)
		}
	}
	return skipped
}

// putBack queues skipped calls again, at the head of their lanes, each key to go out alone.
func (q *Queue[Q, A]) putBack(skipped []*call[Q, A]) {
	byLane := make(map[*lane[Q, A]][]*call[Q, A])
	for _, c := range skipped {
		c.sent, c.alone = false, true
		byLane[c.lane] = append(byLane[c.lane], c)
	}
	for l, calls := range byLane {
		l.unshift(calls)
	}
	q.waiting += len(skipped)
}

func stayedLocked(key string) error {
	return fmt.Errorf("%w: %q stayed locked; nothing was written", dblock.ErrBusy, key)
}
