package session

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// prove is no step: any answer of the connection to a statement that was sent later proves that the connection lives.
const prove Op = 0xff

// ask is one step for one slot; p is who wants it, where that is the lock, and h whose release it is.
type ask struct {
	Step
	sl   *slot
	p    *place
	h    *hold
	wake chan struct{} // who waits for the answer does so here; nil: nobody

	s       *session // that it was sent on; these are guarded by Locker.mu, like the slot
	queued  bool     // it was not sent yet
	forgoes bool     // what it frees had been waited for, and is not any more: see form
	granted bool     // p has the lock
	held    bool     // the server has confirmed that the lock was held until then
	err     error

	settled atomic.Bool // what became of it stands above
}

// tries is how often a call asks again whose connection ended, or that the server refused to answer.
const tries = 4

// try asks once.
func (l *Locker) try(ctx context.Context, r *root.Request, id ID) (*dblock.Lock, error) {
	l.mu.Lock()
	p, err := l.enter(ctx, r, id, false)
	if err != nil {
		l.mu.Unlock()
		return nil, err
	}
	return l.acquire(ctx, p, func() error { return l.refusal(p, nil) })
}

// wait asks until it has the lock: when it is told that it was given back, and now and then.
func (l *Locker) wait(ctx context.Context, r *root.Request, id ID) (*dblock.Lock, error) {
	if ctx.Err() != nil {
		return nil, &dblock.HeldError{Key: r.Key, Wait: sqlerr.NotSent(ctx)}
	}
	l.mu.Lock()
	p, err := l.enter(ctx, r, id, true)
	if err != nil {
		l.mu.Unlock()
		return nil, err
	}
	var began time.Time
	return l.acquire(ctx, p, func() error {
		if began.IsZero() {
			began = time.Now()
		}
		if shown, err := l.show(ctx, p); shown || err != nil {
			return err
		}
		l.signalNews()
		return l.pause(ctx, p, l.untilNext(time.Since(began)))
	})
}

// acquire goes on until p has the lock. Refused is called when another session has it; where that returns an error it is
// over. l.mu is held, and no more when it returns.
func (l *Locker) acquire(ctx context.Context, p *place, refused func() error) (*dblock.Lock, error) {
	for failed := 0; ; l.mu.Lock() {
		lock, asked, err := l.advance(ctx, p)
		if lock != nil {
			return lock, nil
		}
		if err == nil && asked {
			if err = refused(); err == nil {
				failed = 0 // however often a connection is lost in a long wait
			}
		}
		if err != nil && failed < tries && ctx.Err() == nil && l.again(err) {
			failed++
			err = l.pause(ctx, p, time.Millisecond<<(2*failed))
		}
		if err != nil {
			l.leave(p)
			return nil, l.explain(ctx, p, err)
		}
	}
}

// advance does what is p's to do now, or waits for news; asked tells that another session has the lock. l.mu is held, and
// no more when it returns.
func (l *Locker) advance(ctx context.Context, p *place) (lock *dblock.Lock, asked bool, err error) {
	sl := p.sl
	var op Op
	switch {
	case p.lock != nil:
		defer l.mu.Unlock()
		return p.lock, false, nil
	case l.closed:
		l.mu.Unlock()
		return nil, false, errClosed()
	case sl.busy || sl.queue[0] != p || !sl.mayAsk(p):
		l.mu.Unlock()
		return nil, false, l.hear(ctx, p, nil)
	case sl.has:
		op = l.looks(p.r.Mode)
	default:
		op = takes(p.r.Mode)
	}
	after := sl.after
	sl.busy, sl.after, p.refused, p.told = true, false, false, false
	if after { // nobody of this process comes before it meanwhile
		l.mu.Unlock()
		err := l.standBack(ctx)
		l.mu.Lock()
		if err != nil {
			l.settle(&ask{Step: Step{sl.id, Look}, sl: sl}, false, err, time.Now())
			l.mu.Unlock()
			return nil, false, err
		}
	}
	a := p.asks(op)
	err = l.send(ctx, a)
	if a.settled.Load() && a.granted {
		return p.lock, false, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	took := a.takes()
	return nil, p.lock == nil && (took && p.refused || !took && sl.over), err
}

func (a *ask) takes() bool { return a.Op == Take || a.Op == TakeShared }

func takes(m dblock.Mode) Op {
	if m == dblock.ModeShared {
		return TakeShared
	}
	return Take
}

func frees(m dblock.Mode) Op {
	if m == dblock.ModeShared {
		return FreeShared
	}
	return Free
}

// looks is what tells whether this process should give back what it has: others wait for what it has alone, or wait to have
// alone what it shares. In the server's own line whoever waits comes before those who come later.
func (l *Locker) looks(m dblock.Mode) Op {
	if m == dblock.ModeShared && !l.o.ServerQueue {
		return LookForOne
	}
	return Look
}

// settle notes what became of a step, once; l.mu is held. A step whose session has ended in the meantime has not been done.
func (l *Locker) settle(a *ask, done bool, err error, now time.Time) {
	if a.settled.Load() {
		return
	}
	if done && a.sl.s != a.s {
		done, err = false, errEnded
	}
	a.err = err
	a.held = a.confirms(done, err)
	if a.Op != prove {
		l.settleSlot(a, done, err, now)
	}
	a.settled.Store(true)
}

// confirms tells whether the connection held the lock when it answered. After an error on a session that lives, undo has
// seen that the connection lives.
func (a *ask) confirms(done bool, err error) bool {
	if a.s == nil || a.s.ctx.Err() != nil {
		return false
	}
	return err != nil || done || a.Op == Look || a.Op == LookForOne
}

// settleSlot notes what a step has changed for its slot; l.mu is held.
func (l *Locker) settleSlot(a *ask, done bool, err error, now time.Time) {
	sl := a.sl
	sl.busy = false
	switch a.Op {
	case Take, TakeShared:
		a.p.refused = err == nil && !done
		if done {
			l.take(a, now)
		}
	case Free, FreeShared:
		if a.forgoes {
			sl.intends = false
		}
		sl.askAgain()
		sl.after = sl.over && sl.has
		sl.has, sl.over = false, false
	case Show:
		sl.shows = done
	case Hide:
		sl.shows = false
	case Intend:
		sl.intends = done
	case Forgo:
		sl.intends = false
	case Look, LookForOne:
		if err == nil && sl.has {
			l.looked(sl, done, now)
		}
		if a.p != nil {
			a.p.refused = sl.over
		}
	}
	l.next(sl)
	sl.proven = false
}

// looked notes that this process has the lock still, and whether other sessions wait for it; l.mu is held.
func (l *Locker) looked(sl *slot, others bool, now time.Time) {
	if !others {
		sl.newTurn(now)
	}
	sl.over = others && (l.o.ServerQueue || sl.turnIsOver(now))
	sl.proven = true
}

// take notes that the server has given a lock to this process, and grants it to who asked for it; l.mu is held.
func (l *Locker) take(a *ask, now time.Time) {
	sl := a.sl
	sl.has, sl.mode, sl.began = true, a.p.r.Mode, now
	sl.newTurn(now)
	sl.proven = !l.o.ServerQueue // others may wait there already
	if !a.p.gone && !l.closed {
		l.grant(a.p, now)
		a.granted = true
	}
}

// show tells other sessions that this process waits; false where they know. What was given back meanwhile is asked for again,
// and so is what could not be told.
func (l *Locker) show(ctx context.Context, p *place) (again bool, err error) {
	shown, asked, err := l.tellOthers(ctx, p, Show)
	if err == nil && asked && !shown && l.o.Hears { // a statement was just looking for those who wait, and has seen nobody
		return true, nil
	}
	if err == nil && l.o.Shared && p.r.Mode == dblock.ModeExclusive {
		var intends bool
		intends, err = l.intend(ctx, p)
		shown = shown || intends
	}
	return shown, err
}

// intendTries is how often a call says that it wants a lock alone: it can't be said in the moment in which a reader looks, and
// readers may look often. Where another one has said it already that is as good.
const intendTries = 5

func (l *Locker) intend(ctx context.Context, p *place) (intends bool, err error) {
	for n := range intendTries {
		var asked bool
		intends, asked, err = l.tellOthers(ctx, p, Intend)
		if intends || !asked || err != nil {
			break
		}
		if err = l.sleep(ctx, l.o.Draw(time.Millisecond<<n)); err != nil {
			break
		}
	}
	return intends, err
}

// tellOthers does one of the two, where it is not done and p is the first in line.
func (l *Locker) tellOthers(ctx context.Context, p *place, op Op) (told, asked bool, err error) {
	l.mu.Lock()
	sl := p.sl
	is := &sl.shows
	if op == Intend {
		is = &sl.intends
	}
	mine := !sl.busy && !sl.has && len(sl.queue) > 0 && sl.queue[0] == p
	if *is || !mine {
		l.mu.Unlock()
		return false, false, nil
	}
	sl.busy, p.told = true, false
	err = l.send(ctx, p.asks(op))
	l.mu.Lock()
	defer l.mu.Unlock()
	return *is, true, err
}

// final are the errors that say what there is to say; some of them have a lost connection within.
var final = []error{
	dblock.ErrNotAcquired, dblock.ErrClosed, dblock.ErrUnavailable, dblock.ErrUnsupported, dblock.ErrOverloaded, errNotSent,
}

// again tells whether a call may ask again: its connection ended, or the server did not say.
func (l *Locker) again(err error) bool {
	switch l.engine.Classify(err) {
	case sqlerr.Retryable, sqlerr.Unresolved, sqlerr.Unavailable, sqlerr.Busy:
		return !slices.ContainsFunc(final, func(last error) bool { return errors.Is(err, last) })
	}
	return false
}

// pause waits for news of a lock that another session has, for d at the longest.
func (l *Locker) pause(ctx context.Context, p *place, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	return l.hear(ctx, p, timer.C)
}

// hear waits for news, while ctx lives.
func (l *Locker) hear(ctx context.Context, p *place, due <-chan time.Time) error {
	for {
		l.mu.Lock()
		told := p.told
		p.told = false
		if p.wake == nil {
			p.wake = l.waker()
		}
		l.mu.Unlock()
		if told {
			return nil
		}
		select {
		case <-p.wake:
		case <-due:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.ending.Done():
			return context.Cause(l.ending)
		}
	}
}

// untilNext is until a call asks again that has waited for so long: seldom where it is told of what is given back.
func (l *Locker) untilNext(waited time.Duration) time.Duration {
	every := l.o.Poll
	hears := l.o.Hears || l.watches.Load()
	if !hears {
		every = pace.Interval(waited, l.o.Poll)
	}
	now := time.Now()
	due := now.Add(every/2 + l.o.Draw(every+1)) // processes do not ask in step
	if hears {
		return due.Sub(now)
	}
	return l.pace.Plan(now, due).Sub(now)
}

// heardWithin is how long it takes, with much to spare, until another process has heard of a release and has asked.
const heardWithin = 20 * time.Millisecond

// standBack lets another session have a lock that this process has given back for its sake.
func (l *Locker) standBack(ctx context.Context) error {
	d := heardWithin
	if !l.o.Hears && !l.watches.Load() { // others do as this process does, as far as can be told
		d = l.o.Poll * 3 / 2
	}
	return l.sleep(ctx, d)
}

// sleep waits, and leaves news for later.
func (l *Locker) sleep(ctx context.Context, d time.Duration) error {
	return l.pause(ctx, &place{}, d)
}

// heard is told that a lock was given back for which this process has said that it waits.
func (l *Locker) heard(id ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sl := l.slots[id]; sl != nil && len(sl.queue) > 0 {
		sl.queue[0].tell()
	}
}
