package session

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
)

// The statements of a session are sent one after the other. Requests that arrive while one is under
// way share the next. A slot has one request at a time, so that the order within a statement does
// not matter.

// prove is an Op of no step: any answer to a statement that was sent later proves that the
// connection lives.
const prove Op = 0xff

// request is a step for a slot.
type request struct {
	Step
	slot    *slot
	waiter  *waiter       // its caller, if it asks for the lock
	release bool          // its caller releases the lock
	wake    chan struct{} // where its caller waits; nil: none does

	session *session // on which it was sent; these are guarded by base.mu
	queued  bool     // it was not sent yet
	forgoes bool     // a Forgo was sent before it: see form.
	hides   bool     // a Hide was.
	granted bool     // its waiter has the lock
	held    bool     // the server has confirmed that the lock was held until then
	err     error

	settled atomic.Bool // its result is recorded
}

func (r *request) takes() bool { return r.Op == Take || r.Op == TakeShared }

// confirms reports whether the connection held the lock when it answered. After an error on a
// session that lives, undo has found that the connection lives.
func (r *request) confirms(done bool, err error) bool {
	if r.session == nil || r.session.ctx.Err() != nil {
		return false
	}
	return err != nil || done || r.Op == HasWaiters || r.Op == HasExclusiveWaiters
}

// errNotSent: the caller's context ended while its request was queued.
var errNotSent = errors.New("dblock: the wait ended before the request was sent")

// errLate: the server did not answer a release in time.
var errLate = errors.New("dblock: the server did not answer in time")

func notSent(ctx context.Context) error { return fmt.Errorf("%w: %w", errNotSent, ctxerr.Of(ctx)) }

// send sends a request of a slot and waits for its answer; see answer. The request is settled in
// any case, then or later. sl.mu is held, and not held when it returns.
func (sl *slots) send(ctx context.Context, r *request) error {
	s, err := sl.sessionOf(ctx, r.slot)
	if err == nil && ctx.Err() != nil {
		err = notSent(ctx)
	}
	if err == nil {
		err = s.enqueue(r)
	}
	if err != nil {
		sl.settle(r, false, err, time.Now())
		sl.mu.Unlock()
		return err
	}
	starts := s.starts()
	if r.wake == nil {
		r.wake = sl.waker()
		if r.waiter != nil {
			r.waiter.wake = r.wake
		}
	}
	sl.mu.Unlock()
	if starts {
		go s.serve()
	}
	return sl.awaitReply(ctx, r)
}

// awaitReply waits for the answer to a request while ctx lives. The wait for a release ends after
// longestRelease. Another goroutine reads the answer, so that a silent server blocks no caller.
func (sl *slots) awaitReply(ctx context.Context, r *request) error {
	var late <-chan time.Time
	if r.release {
		timer := time.NewTimer(sl.o.longestRelease())
		defer timer.Stop()
		late = timer.C
	}
	for !r.settled.Load() {
		select {
		case <-r.wake:
		case <-late:
			return errLate
		case <-ctx.Done():
			sl.withdraw(ctx, r)
			return ctxerr.Of(ctx)
		}
	}
	return r.err
}

// withdraw takes a request out of the queue, unless it was sent. It may be anywhere in a long
// queue, so it is marked.
func (sl *slots) withdraw(ctx context.Context, r *request) {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	if r.queued {
		r.queued = false
		r.session.waiting--
		sl.settle(r, false, notSent(ctx), time.Now())
	}
}

// post sends a request for which no caller waits; sl.mu is held.
func (sl *slots) post(of *slot, op Op) {
	of.busy = true
	s := of.session
	_ = s.enqueue(&request{Step: Step{of.id, op}, slot: of}) // it takes nothing, so it is not refused
	if s.starts() {
		go s.serve()
	}
}

// enqueue puts a request into the queue; base.mu is held.
func (s *session) enqueue(r *request) error {
	if r.takes() && s.waiting >= s.of.o.MaxQueue {
		return fmt.Errorf("%w: %d calls wait already; nothing was sent", dblock.ErrOverloaded, s.of.o.MaxQueue)
	}
	r.session, r.queued = s, true
	s.queue = append(s.queue, r)
	s.waiting++
	return nil
}

// starts reports whether the caller that has added a request has to start serve; base.mu is held.
func (s *session) starts() bool {
	if s.serves {
		return false
	}
	s.serves = true
	s.of.running++
	return true
}

// serve sends the queued requests until there are none.
func (s *session) serve() {
	for more := true; more; more = s.goesOn() {
		s.serveOnce()
		runtime.Gosched() // woken callers may have more requests: a statement for the first one alone would delay the others
	}
}

// goesOn reports whether requests are queued. If not, the next request starts serve again.
func (s *session) goesOn() bool {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	clear(s.flying)
	s.flying = s.flying[:0]
	if len(s.queue) > 0 {
		return true
	}
	s.serves = false
	s.of.ran(1)
	return false
}

// serveOnce sends one statement and settles its requests. It wakes their callers when the mutex is
// free for them.
func (s *session) serveOnce() {
	mu := &s.of.mu
	mu.Lock()
	s.nextBatch()
	mu.Unlock()
	if len(s.flying) == 0 { // all were withdrawn
		return
	}
	done, err := s.steps(s.sends)
	mu.Lock()
	now := time.Now()
	for i, r := range s.flying {
		s.of.owner.settle(r, err == nil && (r.Op == prove || done[s.at[i]]), err, now)
	}
	mu.Unlock()
	for _, r := range s.flying {
		wake(r.wake)
	}
}

// nextBatch takes the next statement off the queue: its requests, its steps, and the place of each
// request in them. A Free of a lock that this session wants exclusively has a Forgo before it. Else
// the sessions that share the lock would be notified of the release while they are still kept out.
// base.mu is held.
func (s *session) nextBatch() {
	s.sends, s.at = s.sends[:0], s.at[:0]
	later := s.queue[:0]
	for i, r := range s.queue {
		if !r.queued {
			continue
		}
		if len(s.flying) == s.of.o.MaxBatch {
			later = append(later, s.queue[i:]...)
			break
		}
		if s.of.o.Alike && len(s.flying) > 0 && s.flying[0].takes() != r.takes() {
			later = append(later, r)
			continue
		}
		r.queued = false
		s.waiting--
		if r.Op == Free && r.slot.intends && r.slot.session == s {
			r.forgoes = true
			s.sends = append(s.sends, Step{r.ID, Forgo})
		}
		if r.Op == HasWaiters && r.slot.shows && s.of.o.OneShows {
			r.hides = true
			s.sends = append(s.sends, Step{r.ID, Hide})
		}
		s.flying, s.at = append(s.flying, r), append(s.at, len(s.sends))
		if r.Op != prove {
			s.sends = append(s.sends, r.Step)
		}
	}
	clear(s.queue[len(later):])
	s.queue = later
}
