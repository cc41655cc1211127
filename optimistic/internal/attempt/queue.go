package attempt

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
)

// queues are the wait queues of the process, by row. A first attempt looks for one only if there
// are any.
var queues = struct {
	n  atomic.Int64
	mu sync.Mutex
	of map[any]*queue
}{of: make(map[any]*queue)}

// queue holds the callers of one process that want to write one row, in FIFO order. Of two that try
// at once one fails, and its UPDATE takes the row's lock, and on Postgres a flush, to find that
// out.
type queue struct {
	waiters int           // guarded by queues.mu
	front   chan struct{} // of one; a channel serves its senders in FIFO order
}

// waiter is one caller, which is in no queue before its first conflict.
type waiter struct {
	row     any // nil: it never queues
	queue   *queue
	atFront bool
}

// Enter waits until the caller is at the front of the queue for a row, which is any comparable
// value, or until ctx ends. Call leave in both cases.
func Enter(ctx context.Context, row any) (leave func(), entered bool) {
	w := &waiter{row: row}
	return w.leave, w.wait(ctx, 2)
}

// wait waits until the caller is at the front of the row's queue, where it stays until leave. A
// first attempt for whose row there is no queue does not wait. It is false if ctx has ended before.
func (w *waiter) wait(ctx context.Context, attempt int) bool {
	if w.row == nil || w.atFront || attempt == 1 && queues.n.Load() == 0 || !w.join(attempt > 1) {
		return true
	}
	select {
	case w.queue.front <- struct{}{}:
		w.atFront = true
		return true
	case <-ctx.Done():
		return false
	}
}

// join enters the row's queue. If there is none, it makes one if it must.
func (w *waiter) join(must bool) bool {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	q := queues.of[w.row]
	switch {
	case q == nil && !must:
		return false
	case q == nil:
		q = &queue{front: make(chan struct{}, 1)}
		queues.of[w.row] = q
		queues.n.Add(1)
	}
	q.waiters++
	w.queue = q
	return true
}

func (w *waiter) leave() {
	if w.queue == nil {
		return
	}
	if w.atFront {
		<-w.queue.front
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if w.queue.waiters--; w.queue.waiters == 0 {
		delete(queues.of, w.row)
		queues.n.Add(-1)
	}
}

// nestedWait bounds how long an update waits for a row's lock within another one that keeps others
// waiting.
const nestedWait = time.Second

// depthKey is for the number of attempts, one within the other, that keep others waiting: they hold
// a lock or a slot, or are at the front of a row's wait queue.
type depthKey struct{}

// deeper is ctx within one more of them.
func deeper(ctx context.Context) context.Context {
	return context.WithValue(ctx, depthKey{}, depthOf(ctx)+1)
}

func depthOf(ctx context.Context) int {
	depth, _ := ctx.Value(depthKey{}).(int)
	return depth
}

// LockWait bounds the wait for a lock that an attempt takes; the zero value: as long as the server
// waits. Within an attempt of another update that keeps others waiting it is a second. Two that
// lock their rows in opposite orders would wait for each other, and no server sees that, because
// each uses several connections.
func LockWait(ctx context.Context) dblock.TxWait {
	if depthOf(ctx) > 1 {
		return dblock.WaitAtMost(nestedWait)
	}
	return dblock.TxWait{}
}

// crossedError is for a nested update that did not get its lock in time. The outermost one rolls
// back and is tried again.
type crossedError struct{ error }

func (e *crossedError) Unwrap() error { return e.error }

// crossed marks the error of a nested update that waited too long for a lock.
func (p *Plan) crossed(err error) error {
	if p.nested && errors.Is(err, dblock.ErrNotAcquired) {
		return &crossedError{err}
	}
	return err
}
