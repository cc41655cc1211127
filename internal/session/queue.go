package session

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/dblock-go/dblock"
)

// The statements of a session are sent one after the other: what is asked for while one is under way shares the next. For a
// lock there is one request at a time, so that the order within a statement does not matter.

// errNotSent says that the caller's context ended while its request stood in the queue.
var errNotSent = errors.New("dblock: the wait ended before the request was sent")

// errLate says that the server did not answer a release in time.
var errLate = errors.New("dblock: the server did not answer in time")

func notSent(ctx context.Context) error { return fmt.Errorf("%w: %w", errNotSent, context.Cause(ctx)) }

// send carries out a request of a slot and waits for its answer; see answer. The request is settled in any case, then or
// later. l.mu is held, and no more when it returns.
func (l *Locker) send(ctx context.Context, a *ask) error {
	s, err := l.sessionOf(ctx, a.sl)
	if err == nil && ctx.Err() != nil {
		err = notSent(ctx)
	}
	if err == nil {
		err = s.add(a)
	}
	if err != nil {
		l.settle(a, false, err, time.Now())
		l.mu.Unlock()
		return err
	}
	starts := s.starts()
	if a.wake == nil {
		a.wake = l.waker()
		if a.p != nil {
			a.p.wake = a.wake
		}
	}
	l.mu.Unlock()
	if starts {
		go s.serve()
	}
	return l.answer(ctx, a)
}

// answer waits for the answer to a request: while ctx lives, and for longestRelease if it is a release. Another goroutine reads
// it, so that a server that falls silent keeps no caller.
func (l *Locker) answer(ctx context.Context, a *ask) error {
	var late <-chan time.Time
	if a.h != nil {
		timer := time.NewTimer(longestRelease)
		defer timer.Stop()
		late = timer.C
	}
	for !a.settled.Load() {
		select {
		case <-a.wake:
		case <-late:
			return errLate
		case <-ctx.Done():
			l.withdraw(ctx, a)
			return context.Cause(ctx)
		}
	}
	return a.err
}

// withdraw takes a request out of the queue, unless it was sent.
func (l *Locker) withdraw(ctx context.Context, a *ask) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.queued { // it may stand anywhere in a long line, so it is only marked
		a.queued = false
		a.s.waiting--
		l.settle(a, false, notSent(ctx), time.Now())
	}
}

// post has something carried out that nobody waits for; l.mu is held.
func (l *Locker) post(sl *slot, op Op) {
	sl.busy = true
	s := sl.s
	_ = s.add(&ask{Step: Step{sl.id, op}, sl: sl}) // what ends something is never refused
	if s.starts() {
		go s.serve()
	}
}

// add puts a request into the queue; l.mu is held.
func (s *session) add(a *ask) error {
	if a.takes() && s.waiting >= s.l.o.MaxQueue {
		return fmt.Errorf("%w: %d calls wait already; nothing was sent", dblock.ErrOverloaded, s.l.o.MaxQueue)
	}
	a.s, a.queued = s, true
	s.queue = append(s.queue, a)
	s.waiting++
	return nil
}

// starts tells whoever has added a request whether it is to see to its being sent; l.mu is held.
func (s *session) starts() bool {
	if s.serves {
		return false
	}
	s.serves = true
	s.l.running++
	return true
}

// serve sends what waits, until nothing does.
func (s *session) serve() {
	for more := true; more; more = s.goesOn() {
		s.serveOnce()
		runtime.Gosched() // those who were woken may have more to ask: a statement for the first of them alone would keep all others waiting
	}
}

// goesOn tells whether something waits. If not, whoever comes next begins anew.
func (s *session) goesOn() bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	clear(s.flying)
	s.flying = s.flying[:0]
	if len(s.queue) > 0 {
		return true
	}
	s.serves = false
	s.l.ran(1)
	return false
}

// serveOnce sends one statement, and settles what it has done. Those who wait are woken when the Locker is free for them.
func (s *session) serveOnce() {
	l := s.l
	l.mu.Lock()
	s.form()
	l.mu.Unlock()
	if len(s.flying) == 0 { // they have all gone
		return
	}
	done, err := s.steps(s.sends)
	l.mu.Lock()
	now := time.Now()
	for i, a := range s.flying {
		l.settle(a, err == nil && (a.Op == prove || done[s.at[i]]), err, now)
	}
	l.mu.Unlock()
	for _, a := range s.flying {
		wake(a.wake)
	}
}

// form takes the next statement off the queue: its requests, what it sends, and where each of them stands there. Who frees what
// it said that it wants alone unsays that before: those who share it are told that it is free, and would be kept out
// still. l.mu is held.
func (s *session) form() {
	s.sends, s.at = s.sends[:0], s.at[:0]
	later := s.queue[:0]
	for i, a := range s.queue {
		if !a.queued {
			continue
		}
		if len(s.flying) == s.l.o.MaxBatch {
			later = append(later, s.queue[i:]...)
			break
		}
		if s.l.o.Alike && len(s.flying) > 0 && s.flying[0].takes() != a.takes() {
			later = append(later, a)
			continue
		}
		a.queued = false
		s.waiting--
		if a.Op == Free && a.sl.intends && a.sl.s == s {
			a.forgoes = true
			s.sends = append(s.sends, Step{a.ID, Forgo})
		}
		s.flying, s.at = append(s.flying, a), append(s.at, len(s.sends))
		if a.Op != prove {
			s.sends = append(s.sends, a.Step)
		}
	}
	clear(s.queue[len(later):])
	s.queue = later
}

// waker returns what a caller waits at. That it was woken says nothing: it has to look. So one that is used again may have
// been left over by others.
func (l *Locker) waker() chan struct{} {
	if w, ok := l.wakers.Get().(chan struct{}); ok {
		return w
	}
	return make(chan struct{}, 1)
}

// wake never waits.
func wake(w chan struct{}) {
	select {
	case w <- struct{}{}:
	default: // nobody waits there, or is awake already
	}
}
