package lease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/root"
)

// waitQueues are the calls of a process that want keys, one queue a key. The first waiter of a
// queue asks the database, or holds the key. The others wait behind it, in the order of their
// calls. So a process asks for a key once at a time, however many want it. Readers, and callers
// that want permits, queue only if others do, and leave the queue with what they got.
//
// The states of a waiter:
//
//	waiterQueued ─▶ waiterActive ─▶ waiterHolds ─▶ waiterGone
//	      │              │                              ▲
//	      └──────────────┴──────────────────────────────┘
//
// A queued waiter becomes active when it is the first, or a reader behind readers that were let in.
// It may then find that the hold before it was handed over to it (given). It holds the key until
// the hold ends. From each state it may leave.
type waitQueues struct {
	clock  clock.Clock
	ending context.Context // of the Locker

	mu     sync.Mutex
	byName map[string]*waitQueue
	closed bool
}

// waitQueue is the queue of one key.
type waitQueue struct {
	waiters  []*waiter
	seen     *dblock.HeldError // the holder that the database named last.
	since    time.Time         // when this process got the key from another one, or asked last whether others wait.
	share    int               // hand-overs until it asks again; 0: it has not handed over yet.
	handOffs int               // of share.
	yields   bool              // the key was released for another process, and the next waiter lets it go first.
}

type waiterState int

const (
	waiterQueued waiterState = iota // others are before it
	waiterActive                    // it may ask
	waiterHolds                     // a hold keeps its position
	waiterGone
)

// waiter is one call in a queue.
type waiter struct {
	queue   string // see queueOf
	request root.Request
	waits   bool          // it waits for a holder
	active  chan struct{} // closed when it is active; nil: it always was

	// These are guarded by waitQueues.mu. After active is closed given does not change.
	state   waiterState
	given   *granted // what the hold before has handed over
	offered bool     // a hand-over to it is under way, or the server has not replied to it

	// Only its own call uses these.
	pending      *granted // what was granted to it, and is to be held when the readers have gone
	readersYield bool     // readers let it go first
}

// queueOf names the queue for a request. A semaphore and a lock of the same name have nothing to do
// with each other.
func queueOf(r root.Request) string {
	if r.Mode == dblock.ModePermit {
		return "\x00" + r.Key // no key begins so
	}
	return r.Key
}

// enqueue adds a waiter. A call that does not wait is refused if others are before it.
func (q *waitQueues) enqueue(r root.Request, waits bool) (*waiter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, errNotSent()
	}
	name := queueOf(r)
	of := q.byName[name]
	if of == nil {
		of = &waitQueue{}
		q.byName[name] = of
	}
	if len(of.waiters) > 0 && !waits {
		return nil, of.held(r.Key)
	}
	w := &waiter{queue: name, request: r, waits: waits, state: waiterActive}
	if len(of.waiters) > 0 {
		w.state, w.active = waiterQueued, make(chan struct{})
	}
	of.waiters = append(of.waiters, w)
	return w, nil
}

func errNotSent() error { return fmt.Errorf("%w: nothing was sent", dblock.ErrClosed) }

// close refuses further waiters.
func (q *waitQueues) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// held names the holder of the key: another caller of this process, or the holder that was seen
// last. The mutex is held.
func (of *waitQueue) held(key string) *dblock.HeldError {
	switch {
	case of == nil:
		return &dblock.HeldError{Key: key}
	case len(of.waiters) > 0 && of.waiters[0].state == waiterHolds:
		return &dblock.HeldError{Key: key, Holder: dblock.Holder{Label: "another caller of this process"}}
	case of.seen == nil:
		return &dblock.HeldError{Key: key}
	}
	seen := *of.seen
	return &seen
}

// refusal is the error of a call that does not queue, if others do; nil: there are none.
func (q *waitQueues) refusal(r root.Request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := q.byName[queueOf(r)]
	switch {
	case q.closed:
		return errNotSent()
	case of == nil:
		return nil
	}
	return of.held(r.Key)
}

// await waits until w is active.
func (q *waitQueues) await(ctx context.Context, w *waiter) error {
	if w.active == nil {
		return nil
	}
	select {
	case <-w.active:
		return nil
	case <-ctx.Done():
	case <-q.ending.Done():
	}
	q.mu.Lock()
	first, offered := q.byName[w.queue].waiters[0] == w, w.offered
	q.mu.Unlock()
	switch {
	case first: // it became so at the same moment, and what was handed over is its own
		return nil
	case offered:
		return errHandedOver(ctx, w)
	case ctx.Err() == nil:
		return errNotSent()
	}
	return waitEnded(q.lastSeen(w.request), ctxerr.Of(ctx))
}

func errHandedOver(ctx context.Context, w *waiter) error {
	err := fmt.Errorf("%w: the wait for the lock of %q ended while it was handed over; it goes on to the next one",
		dblock.ErrOutcomeUnknown, w.request.Key)
	if ctx.Err() == nil { // the Locker is closed
		return err
	}
	return fmt.Errorf("%w: %w", err, ctxerr.Of(ctx))
}

// wasOffered reports that a hand-over to w is under way, or has no reply.
func (q *waitQueues) wasOffered(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return w.offered
}

// lastSeen is the holder of a key as far as this process knows.
func (q *waitQueues) lastSeen(r root.Request) *dblock.HeldError {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.byName[queueOf(r)].held(r.Key)
}

// see notes the holder of a key for the waiters that never ask.
func (q *waitQueues) see(r root.Request, held *dblock.HeldError) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if of := q.byName[queueOf(r)]; of != nil {
		of.seen = held
	}
}

// contended reports that a holder was seen.
func (q *waitQueues) contended(r root.Request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := q.byName[queueOf(r)]
	return of != nil && of.seen != nil
}

// leave ends the position of a call, unless a hold keeps it. A lease that was granted to the call
// too late is returned, and w stays until it is removed.
func (q *waitQueues) leave(w *waiter) (late *granted) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.state == waiterHolds || w.state == waiterGone {
		return nil
	}
	if late = cmp.Or(w.given, w.pending); late == nil {
		q.removeLocked(w)
	}
	return late
}

// hold makes a hold keep the position of w until it is removed.
func (q *waitQueues) hold(w *waiter, began time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.state = waiterHolds
	if w.given == nil {
		of := q.byName[w.queue]
		of.since, of.share = began, 0
	}
}

// remove ends the position of w, once, and activates the next waiter.
func (q *waitQueues) remove(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.removeLocked(w)
}

func (q *waitQueues) removeLocked(w *waiter) {
	if w.state == waiterGone {
		return
	}
	w.state = waiterGone
	of := q.byName[w.queue]
	i := slices.Index(of.waiters, w)
	of.waiters = slices.Delete(of.waiters, i, i+1)
	switch {
	case len(of.waiters) == 0:
		delete(q.byName, w.queue)
	case i == 0:
		of.waiters[0].activate()
	}
}

// activate makes a queued waiter active. The mutex is held.
func (w *waiter) activate() {
	if w.state == waiterQueued {
		w.state = waiterActive
		close(w.active)
	}
}

// activateReaders activates the readers that queue behind a reader that was let in: nothing keeps
// them out.
func (q *waitQueues) activateReaders(behind *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := q.byName[behind.queue]
	for _, next := range of.waiters[slices.Index(of.waiters, behind)+1:] {
		if next.request.Mode != dblock.ModeShared {
			return
		}
		next.activate()
	}
}

// next returns the waiter to which a holder can hand the key over; nil: there is none. If offer is
// true, the waiter is marked: from now on its caller cannot know whether it is granted the lock.
func (q *waitQueues) next(holder *waiter, offer bool) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || holder == nil || holder.state != waiterHolds {
		return nil
	}
	of := q.byName[holder.queue]
	if len(of.waiters) < 2 || of.waiters[1].request.Mode != dblock.ModeExclusive {
		return nil
	}
	next := of.waiters[1]
	next.offered = next.offered || offer
	return next
}

// notGiven notes that a hand-over to w failed, and whether the server may have granted it.
func (q *waitQueues) notGiven(w *waiter, unresolved bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.offered = unresolved
}

// give notes what was handed over to w; false if w has left.
func (q *waitQueues) give(w *waiter, g *granted) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := q.byName[w.queue]
	if of == nil || len(of.waiters) < 2 || of.waiters[1] != w {
		return false
	}
	w.given = g
	return true
}

// A process hands a key over among its own callers, if other processes wait for it, once to each
// that waits when it begins to, and for no longer than this. So the callers of all processes wait
// for about as long, whatever their number.
const maxShare = time.Second

// maxUncontended is the number of hand-overs after which a process asks again if other processes
// wait, when none did so far.
const maxUncontended = 256

// hadItsShare reports whether this process has had the key for long enough, and begins its next
// share.
func (q *waitQueues) hadItsShare(holder *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	of, now := q.byName[holder.queue], q.clock.Now()
	if of == nil { // the lock was lost, and the waiters have left
		return false
	}
	if of.share == 0 {
		of.share = len(of.waiters) - 1
		of.handOffs = of.share
	}
	if of.handOffs > 0 && now.Sub(of.since) < maxShare {
		of.handOffs--
		return false
	}
	of.since = now
	of.share = min(2*of.share, max(maxUncontended, len(of.waiters))) // if no other process waits, this one asks less often
	of.handOffs = of.share
	return true
}

// yield has the next waiter let another process go first.
func (q *waitQueues) yield(holder *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if of := q.byName[holder.queue]; of != nil {
		of.yields = true
	}
}

// yields reports, once, whether the active waiter lets another process go first.
func (q *waitQueues) yields(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := q.byName[w.queue]
	defer func() { of.yields = false }()
	return of.yields
}
