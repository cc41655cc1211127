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

func notSent(ctx context.Context) error { return fmt.Errorf("%w: %w", errNotSent, context.Cause(ctx)) }

// send has a request carried out for a slot that is busy for it, and waits for its answer: while ctx lives, or, for a
// release, for as long as that may take. It is settled in any case, then or later. l.mu is held, and no more when it
// returns.
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
	if starts && (s.inUse() || a.h == nil && ctx.Done() == nil) {
		l.mu.Unlock()
		s.serveOnce()
		s.serveRest()
		return a.err
	}
	if a.wake == nil {
		a.wake = l.waker()
		if a.p != nil {
			a.p.wake = a.wake
		}
	}
	if a.h != nil && !s.patient {
		s.patient = true
		s.patience.Reset(longestRelease)
	}
	l.mu.Unlock()
	if starts {
		go s.serve()
	}
	return l.answer(ctx, a)
}

// answer waits for that of a request.
func (l *Locker) answer(ctx context.Context, a *ask) error {
	for !a.settled.Load() {
		if ctx.Done() == nil {
			<-a.wake
			if a.late.Load() {
				return nil
			}
			continue
		}
		select {
		case <-a.wake:
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

// serveRest has sent what came while a lone caller sent its own.
func (s *session) serveRest() {
	if s.goesOn() {
		go s.serve()
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
	if s.patient {
		s.patient = false
		s.patience.Stop()
	}
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
		l.settle(a, err == nil && done[s.at[i]], err, now)
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
	s.sends, s.at, s.sent = s.sends[:0], s.at[:0], time.Now()
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
		s.sends = append(s.sends, a.Step)
	}
	clear(s.queue[len(later):])
	s.queue = later
}

// overdue lets those go on who release while a statement takes so long.
func (s *session) overdue() {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if !s.serves {
		return
	}
	if left := longestRelease - time.Since(s.sent); left > 0 { // that is another statement
		s.patience.Reset(left)
		return
	}
	for _, as := range [][]*ask{s.flying, s.queue} {
		for _, a := range as {
			if a.h != nil && !a.settled.Load() {
				a.late.Store(true)
				wake(a.wake)
			}
		}
	}
	s.patience.Reset(longestRelease)
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
