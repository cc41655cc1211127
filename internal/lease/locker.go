package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Locker is the dblock.Locker of leases. It is safe for concurrent use. Its parts are layers. A
// layer uses those below it:
//
//	Locker                      waits for what its parts ask for
//	sets, sharing, fairQueue    several keys; readers and permits; first come, first served
//	exclusive                   one key for one holder, after its readers have gone
//	holds                       what this process holds, until its end
//	requester                   acquisitions and releases, each in a batch of a statement
//	pauser                      how long a call waits
//	base                        what all layers use
type Locker struct {
	*Admin
	exclusive *exclusive
	sets      *sets
	sharing   *sharing
	fair      *fairQueue
	unlisten  func() // the heartbeat, to this Locker's Observer and Log
}

// base is what all parts of a Locker use.
type base struct {
	Backend
	*tasks
	o          Options
	member     *member.Member
	waits      *Waits
	reconciler *reconciler
	queues     *waitQueues
}

// tasks are what a Locker does beside its callers, until it is closed.
type tasks struct {
	mu     sync.Mutex
	closed bool
	all    sync.WaitGroup
	ending context.Context
	end    context.CancelCauseFunc
}

// requester sends acquisitions and releases.
type requester struct {
	*pauser
	acquires      [3]*batch.Queue[acquisition, AcquireResult] // by mode
	behindTickets *batch.Queue[acquisition, AcquireResult]    // for calls that give way to those with tickets
	release       *batch.Queue[releaseCall, ReleaseResult]
	evictions     evictions
}

// acquisition is an AcquireRequest of one incarnation.
type acquisition struct {
	AcquireRequest
	inc *member.Incarnation
}

var _ dblock.Locker = (*Locker)(nil)

// New makes a Locker of what it shares with others; o has its defaults.
func New[Of any](of *Share[Of], o Options) *Locker {
	b := &base{
		Backend: of.backend, tasks: newTasks(), o: o, member: of.Member, waits: of.waits, reconciler: of.reconciler,
	}
	b.queues = &waitQueues{clock: o.Clock, ending: b.ending, byName: make(map[string]*waitQueue)}
	l := &Locker{Admin: newAdmin(b)}
	l.exclusive = &exclusive{newHolds(l, newRequester(&pauser{b}))}
	l.sets, l.sharing, l.fair = newSets(l.exclusive), &sharing{exclusive: l.exclusive}, newFairQueue(l.exclusive)
	l.unlisten = b.member.Listen(member.Listener{Observer: o.Observer, Log: o.Log})
	return l
}

func newTasks() *tasks {
	t := &tasks{}
	t.ending, t.end = context.WithCancelCause(context.Background())
	return t
}

func newRequester(p *pauser) *requester {
	q := &requester{pauser: p}
	q.acquires[dblock.ModeExclusive] = q.acquiring(dblock.ModeExclusive, eachKeyOnce(q.acquireOf(KindExclusive)))
	q.acquires[dblock.ModeShared] = q.acquiring(dblock.ModeShared, checked(q.acquireOf(KindShared)))
	q.acquires[dblock.ModePermit] = q.acquiring(dblock.ModePermit, checked(q.acquireOf(KindPermits)))
	q.behindTickets = q.acquiring(dblock.ModeExclusive, eachKeyOnce(q.acquireOf(KindExclusive)))
	q.release = batch.New(batch.Options[releaseCall, ReleaseResult]{
		Run: q.runRelease, Key: func(b releaseCall) string { return b.Key }, Ends: func(releaseCall) bool { return true }, Classify: p.Traits.Classify,
		Weight: releaseCall.weight, MaxWeight: p.Traits.maxWeight(),
		MaxBatch: p.o.MaxBatch, MaxInFlight: p.o.MaxInFlight, Patience: p.o.patience,
	})
	return q
}

// close waits for what is under way.
func (q *requester) close(ctx context.Context) error {
	var errs []error
	for _, acquire := range append(q.acquires[:], q.behindTickets) {
		errs = append(errs, acquire.Close(ctx))
	}
	return errors.Join(append(errs, q.release.Close(ctx))...)
}

// acquiring makes a queue of acquisitions.
func (q *requester) acquiring(mode dblock.Mode, run runAcquire[AcquireResult]) *batch.Queue[acquisition, AcquireResult] {
	var queue *batch.Queue[acquisition, AcquireResult]
	queue = batch.New(batch.Options[acquisition, AcquireResult]{
		Run: sizing(q.base, func(n int) { queue.Limit(n) }, func(ctx context.Context, requests []acquisition) ([]batch.Result[AcquireResult], error) {
			return byIncarnation(ctx, q.base, requests, run)
		}),
		Key: func(a acquisition) string { return a.Key }, Ends: func(a acquisition) bool { return a.Instead != Handle{} },
		Late: func(a acquisition, got batch.Result[AcquireResult]) {
			q.late(a.inc, got.Value.Token != 0, got.Err, a.undo(mode))
		},
		Classify: q.Traits.Classify,
		Weight:   acquireWeight, MaxWeight: q.Traits.maxWeight(), MaxQueue: q.o.MaxQueue, MaxBatch: q.o.MaxBatch, MaxInFlight: q.o.MaxInFlight, Patience: q.o.patience,
	})
	return queue
}

// Caps says what leases promise.
func (l *Locker) Caps() dblock.Caps {
	beside := !l.o.Fair
	return dblock.Caps{
		Fencing: true, Shared: beside, Permits: beside, Fair: l.o.Fair, MaxHold: true, SurvivesConnectionLoss: true, PoolerSafe: true,
		TrustedFor: l.member.TTL() - l.member.Margin(),
	}
}

// Acquire waits for the lock of key while ctx lives.
func (l *Locker) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	r, err := root.NewRequest(key, opts)
	if err != nil {
		return nil, err
	}
	return l.observed(ctx, r, l.wait)
}

// TryAcquire never waits for a holder.
func (l *Locker) TryAcquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	r, err := root.NewRequest(key, opts)
	if err != nil {
		return nil, err
	}
	return l.observed(ctx, r, l.try)
}

// observed is what Acquire and TryAcquire have in common.
func (l *Locker) observed(
	ctx context.Context, r root.Request, how func(context.Context, root.Request) (*dblock.Lock, error),
) (lock *dblock.Lock, err error) {
	if err := onlyExclusive(r); l.o.Fair && err != nil {
		return nil, err
	}
	if lock, err := root.Reenter(ctx, l, r); lock != nil || err != nil {
		return lock, err
	}
	if ctx.Err() != nil {
		return nil, waitEnded(l.queues.lastSeen(r), sqlerr.NotSent(ctx))
	}
	began := l.o.Clock.Now()
	lock, err = how(ctx, r)
	waited := l.o.Clock.Now().Sub(began)
	if err == nil && l.o.Observer.Acquired != nil {
		l.o.Observer.Acquired(r.Key, waited)
	}
	if err != nil && l.o.Observer.NotAcquired != nil {
		l.o.Observer.NotAcquired(r.Key, waited, err)
	}
	return lock, err
}

// try asks once.
func (l *Locker) try(ctx context.Context, r root.Request) (*dblock.Lock, error) {
	switch {
	case l.o.Fair:
		lock, refused, err := l.fair.try(ctx, r)
		return lock, unless(lock, refused, err)
	case r.Mode != dblock.ModeExclusive:
		lock, refused, err := l.sharing.atOnce(ctx, r)
		return lock, unless(lock, refused, err)
	}
	return l.exclusive.tryExclusive(ctx, r)
}

// tryExclusive asks, unless another call of this process holds the key or queues for it.
func (x *exclusive) tryExclusive(ctx context.Context, r root.Request) (*dblock.Lock, error) {
	w, held := x.queues.enqueue(r, false)
	if held != nil {
		return nil, held
	}
	defer x.leave(w)
	lock, refused, err := x.request(ctx, w, r)
	return lock, unless(lock, refused, err)
}

// unless is the error of a call that did not wait.
func unless(lock *dblock.Lock, refused *dblock.HeldError, err error) error {
	if lock == nil && err == nil {
		return refused
	}
	return err
}

// waitEnded names the holder of a lock that was not acquired, and what ended the wait for it.
func waitEnded(refused *dblock.HeldError, why error) error {
	if errors.Is(why, dblock.ErrClosed) {
		return why
	}
	e := *refused
	e.Wait = why
	return &e
}

// Holds reports whether the fence belongs to a lock of this process that has not ended, as far as
// the process knows.
func (l *Locker) Holds(f dblock.Fence) bool { return l.reconciler.handles.held(f.Handle) }

// Fenced ends the lock of a fence that a guard has refused.
func (l *Locker) Fenced(f dblock.Fence) { l.exclusive.fenced(f) }

// Close refuses further calls, ends the contexts of all locks, and waits until they are released.
// When ctx ends, it has the rest released in the background.
func (l *Locker) Close(ctx context.Context) error {
	defer l.unlisten()
	x := l.exclusive
	all, empty := x.holds.close()
	x.tasks.close()
	l.queues.close()
	l.end(fmt.Errorf("%w", dblock.ErrClosed))
	for _, h := range all {
		h.lose(dblock.ReasonClosed)
	}
	if err := clock.Await(ctx, empty, "locks are still in use"); err != nil {
		x.releaseAll()
		return err
	}
	ctx, stop := clock.Late(ctx)
	defer stop()
	if err := clock.Await(ctx, clock.After(x.tasks.all.Wait), "operations are still under way"); err != nil {
		return err
	}
	return errors.Join(l.fair.tickets.Close(ctx), l.sets.requests.Close(ctx), l.lists.Close(ctx), x.requester.close(ctx))
}

// close refuses further tasks.
func (t *tasks) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}
