package batch

import (
	"sync/atomic"
	"time"
)

// call is one request in the queue.
type call[Q, A any] struct {
	req    Q
	lane   *lane[Q, A]
	result chan Result[A] // holds one, so that sending never blocks
	then   func(A, error) // of a call that was posted: no caller waits for it

	settled atomic.Bool // it has its answer, or its caller has left: whichever came first

	sent      bool // it left the queue for a statement
	withdrawn bool // its caller gave up before that
	alone     bool // it may share a statement with its own key only

	why    error     // it was answered Alone; nil: it stayed locked.
	behind string    // where it is to wait; empty: in the lane of its own key
	since  time.Time // when it first moved, or was answered Alone
	due    time.Time // when it waits no longer for statements with its other keys; zero: it does not.
	stood  time.Time // when it first waited for one of them that stands aside
}

// lane is the queue of calls for one key.
type lane[Q, A any] struct {
	key   string
	calls []*call[Q, A] // in order of arrival; those withdrawn are passed over when their turn comes
	live  int           // calls that are not withdrawn

	flying int       // statements in flight that carry this key
	began  time.Time // when the last of them was sent
	shared bool      // what is in flight carries other keys as well

	ready  bool // it is in Queue.ready
	wanted bool // it is in Queue.wanted

	blocked int  // statements in flight that stand aside
	resting bool // its calls were answered Alone again: the next statement waits for a timer
	rests   int  // how often in a row
}

func (l *lane[Q, A]) idle() bool { return l.live == 0 && l.flying == 0 && !l.resting && !l.wanted }

// waits reports whether its calls wait for a lock.
func (l *lane[Q, A]) waits() bool { return l.blocked > 0 || l.resting }

// mayBegin reports whether a statement may carry this lane now, if each key has perKey at most.
func (l *lane[Q, A]) mayBegin(perKey int) bool {
	return l.live > 0 && !l.resting && !l.wanted && l.blocked == 0 && (l.flying == 0 || l.flying < perKey && !l.shared)
}

// bearsNoOther reports whether its next statement must carry no other key: it was skipped beside
// others, or would be, as a statement in flight has the row.
func (l *lane[Q, A]) bearsNoOther() bool { return l.flying > 0 || l.head().alone }

func (l *lane[Q, A]) push(c *call[Q, A]) {
	l.calls = append(l.calls, c)
	l.live++
}

// unshift puts calls back at the head, in their order.
func (l *lane[Q, A]) unshift(calls []*call[Q, A]) {
	l.calls = append(append(make([]*call[Q, A], 0, len(calls)+len(l.calls)), calls...), l.calls...)
	l.live += len(calls)
}

// withdraw removes c. It may be anywhere in a long queue, so it is marked.
func (l *lane[Q, A]) withdraw(c *call[Q, A]) {
	c.withdrawn = true
	l.live--
	if l.live == 0 {
		l.calls = nil
	}
}

// head returns the first call that still waits; live must not be 0.
func (l *lane[Q, A]) head() *call[Q, A] {
	for l.calls[0].withdrawn {
		l.calls = l.calls[1:]
	}
	return l.calls[0]
}

// pop takes the first call that still waits out of the lane, and marks it sent; live must not be 0.
func (l *lane[Q, A]) pop() *call[Q, A] {
	c := l.head()
	l.calls = l.calls[1:]
	l.live--
	c.sent = true
	if l.live == 0 {
		l.calls = nil
	}
	return c
}
