package dblock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/pace"
)

// quorumQueue is the callers of one process that want one key, in the order of their calls. The
// first one asks the nodes or holds the lock, so that each process asks for a key once at a time.
// It is guarded by Quorum.mu.
type quorumQueue struct {
	waiters []*quorumWaiter
	last    error     // of the newest try; nil: the nodes granted the lock.
	since   time.Time // when the nodes granted what this process has used since, with no pause; zero: they have not.
	grants  int       // how often they have granted it since.
	freed   time.Time // when it was released on the nodes.
	crowded bool      // other callers waited then.
	emptied int       // how often no waiter was left.

	tokens  []int64   // of the nodes' holders when another process acquired the lock
	changed time.Time // when that was
}

// quorumWaiter is one caller in a queue.
type quorumWaiter struct {
	ctx     context.Context
	request request
	first   chan struct{} // closed when it is the first one
	handed  *quorumHold   // what the holder before it has handed off; nil: nothing
}

const (
	// The pauses between two tries. They are random, so that of several processes that took a node
	// each one gets ahead.
	leastWait     = 10 * time.Millisecond
	maxQuorumWait = 500 * time.Millisecond

	// quorumTurn is for how long a process hands a lock off to its own callers. It then yields: it
	// releases the lock on the nodes and leaves it to other processes for quorumYield, in which
	// those that have seen it change hands ask. A caller that is alone yields less often.
	quorumTurn   = 100 * time.Millisecond
	quorumYield  = 30 * time.Millisecond
	quorumGrants = 4
)

// errOtherCaller is the error of waiters for a lock that their own process holds.
func errOtherCaller(key string) error {
	return &HeldError{Key: key, Holder: Holder{Label: "another caller of this process"}}
}

// enqueue adds a caller to the queue of its key. One that does not wait is refused if the queue has
// waiters.
func (q *Quorum) enqueue(ctx context.Context, r request, wait bool) (*quorumWaiter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := q.queues[r.Key]
	if queue == nil {
		queue = &quorumQueue{changed: q.clock.Now(), tokens: make([]int64, len(q.nodes))}
		q.queues[r.Key] = queue
	}
	w := &quorumWaiter{ctx: ctx, request: r, first: make(chan struct{})}
	if len(queue.waiters) > 0 && !wait {
		if queue.last != nil {
			return nil, queue.last
		}
		return nil, errOtherCaller(r.Key)
	}
	if queue.waiters = append(queue.waiters, w); len(queue.waiters) == 1 {
		close(w.first)
	}
	return w, nil
}

// dequeue removes a waiter from its queue; the next one is the first then.
func (q *Quorum) dequeue(w *quorumWaiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := w.request.Key
	queue := q.queues[key]
	i := slices.Index(queue.waiters, w)
	queue.waiters = slices.Delete(queue.waiters, i, i+1)
	switch {
	case len(queue.waiters) > 0 && i == 0:
		close(queue.waiters[0].first)
	case len(queue.waiters) == 0 && queue.freed.IsZero():
		delete(q.queues, key)
	case len(queue.waiters) == 0:
		queue.emptied++
		emptied := queue.emptied
		clock.Real{}.AfterFunc(quorumYield, func() { q.dropQueue(key, queue, emptied) })
	}
}

// dropQueue drops a queue that has been empty since.
func (q *Quorum) dropQueue(key string, queue *quorumQueue, emptied int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(queue.waiters) == 0 && queue.emptied == emptied {
		delete(q.queues, key)
	}
}

// try asks once, if no other caller of this process is before this one.
func (q *Quorum) try(ctx context.Context, r request) (*Lock, error) {
	w, err := q.enqueue(ctx, r, false)
	if err != nil {
		return nil, err
	}
	lock, err := q.request(ctx, w)
	q.note(w, err)
	if err != nil {
		q.dequeue(w)
	}
	return lock, err
}

// wait waits until this caller is the first of its queue, and asks until the lock is granted.
func (q *Quorum) wait(ctx context.Context, r request) (*Lock, error) {
	w, err := q.enqueue(ctx, r, true)
	if err != nil {
		return nil, err
	}
	waits, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(q.ending, func() { stop(context.Cause(q.ending)) })()
	lock, err := q.await(waits, w, func() error {
		if ctx.Err() == nil { // Close has ended the wait
			return context.Cause(q.ending)
		}
		return ctxerr.Of(ctx)
	})
	if err != nil {
		q.dequeue(w)
	}
	return lock, err
}

// await waits in the queue until the lock is granted. ended returns why ctx has ended.
func (q *Quorum) await(ctx context.Context, w *quorumWaiter, ended func() error) (*Lock, error) {
	select {
	case <-w.first:
	case <-ctx.Done():
		if last, first := q.seen(w); !first {
			return nil, waitEnded(last, ended())
		}
		<-w.first // at the same moment; what was handed off with it is this caller's
	}
	if h := w.handed; h != nil {
		lock, err := h.start(w.ctx)
		if err == nil {
			return lock, nil
		}
		h.releaseAll(ctx)
	}
	if q.yield(ctx, w) != nil {
		return nil, waitEnded(&HeldError{Key: w.request.Key}, ended())
	}
	for {
		lock, err := q.request(ctx, w)
		last := q.note(w, err)
		switch {
		case err == nil || !temporary(err):
			return lock, err
		case last == nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, waitEnded(last, ended())
		}
		if sleep(ctx, q.clock, q.pause(w)) != nil {
			return nil, waitEnded(last, ended())
		}
	}
}

// seen returns the newest error of a waiter's queue, and whether the waiter is the first one.
func (q *Quorum) seen(w *quorumWaiter) (last error, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := q.queues[w.request.Key]
	last = queue.last
	if last == nil {
		last = errOtherCaller(w.request.Key)
	}
	return last, queue.waiters[0] == w
}

// note keeps the result of a try, unless the end of the wait cut it short. It returns the newest
// error of the queue; nil: there is none.
func (q *Quorum) note(w *quorumWaiter, err error) (last error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue, now := q.queues[w.request.Key], q.clock.Now()
	switch {
	case queue == nil: // the lock was granted, and lost since
		return nil
	case err == nil:
		queue.last = nil
		if queue.since.IsZero() || now.Sub(queue.freed) >= quorumYield {
			queue.since, queue.grants = now, 0
		}
		queue.grants++
	case w.ctx.Err() == nil:
		queue.last = err
	}
	return queue.last
}

// saw notes the tokens of the nodes' holders. If they differ on a majority, another process has
// acquired the lock.
func (q *Quorum) saw(key string, tokens []int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue, others := q.queues[key], 0
	for i, token := range tokens {
		switch known := queue.tokens[i]; {
		case known == 0:
			queue.tokens[i] = token
		case token != 0 && token != known:
			others++
		}
	}
	if others >= q.majority {
		queue.tokens, queue.changed = slices.Clone(tokens), q.clock.Now()
	}
}

// pause is how long the first waiter pauses before it asks again: the longer the same holder has
// the lock, the longer.
func (q *Quorum) pause(w *quorumWaiter) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	unchanged := q.clock.Now().Sub(q.queues[w.request.Key].changed)
	return pace.Jitter(min(max(unchanged/8, leastWait), maxQuorumWait))
}

// yield leaves the lock to other processes for a moment, if this one has used it for long.
func (q *Quorum) yield(ctx context.Context, w *quorumWaiter) error {
	q.mu.Lock()
	queue := q.queues[w.request.Key]
	left := quorumYield - q.clock.Now().Sub(queue.freed)
	yields := left > 0 && queue.freed.Sub(queue.since) >= quorumTurn && (queue.crowded || queue.grants >= quorumGrants)
	if yields {
		queue.since = time.Time{}
	}
	q.mu.Unlock()
	if !yields {
		return nil
	}
	return sleep(ctx, q.clock, left)
}

// handOff gives a lock that was released to the next waiter of this process; false: it is to be
// released on the nodes.
func (q *Quorum) handOff(h *quorumHold) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue, now := q.queues[h.key], q.clock.Now()
	i := slices.IndexFunc(queue.waiters, func(w *quorumWaiter) bool {
		return w != h.waiter && w.ctx.Err() == nil
	})
	if i < 0 || q.closed || now.Sub(queue.since) >= quorumTurn {
		return false
	}
	next := queue.waiters[i]
	if !plain(h.waiter.request) || !plain(next.request) {
		return false
	}
	if next.handed = h.successor(next); next.handed == nil {
		return false
	}
	queue.waiters = slices.Delete(queue.waiters, i, i+1)
	queue.waiters[slices.Index(queue.waiters, h.waiter)] = next
	close(next.first)
	return true
}

// plain reports that the nodes' locks for a request are those for any other plain request.
func plain(r request) bool {
	return r.MaxHold == nil && !r.Detached && r.Label == nil && len(r.Data) == 0
}

// released notes that the nodes have released the lock of a queue.
func (q *Quorum) released(w *quorumWaiter) {
	q.mu.Lock()
	if queue := q.queues[w.request.Key]; queue != nil {
		queue.freed = q.clock.Now()
		queue.changed, queue.crowded = queue.freed, len(queue.waiters) > 1
	}
	q.mu.Unlock()
	q.dequeue(w)
}

// waitEnded is the error of the last try of a wait, with what ended that.
func waitEnded(last, why error) error {
	var held *HeldError
	switch {
	case errors.Is(why, ErrClosed):
		return why
	case errors.As(last, &held):
		told := *held
		told.Wait = why
		return &told
	case errors.Is(last, why):
		return last
	}
	return fmt.Errorf("%w; the wait ended: %w", last, why)
}
