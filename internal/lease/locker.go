package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/merge"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Locker is a dblock.Locker of leases. It is safe for concurrent use.
type Locker struct {
	Backend
	member   *member.Member
	o        Options
	acquires [3]*merge.Queue[ask, AcquireResult] // by mode
	inTurn   *merge.Queue[ask, AcquireResult]    // for who gives way to those with tickets
	tickets  *merge.Queue[ask, int64]
	release  *merge.Queue[returning, ReleaseResult]
	waits    *Waits

	reconciler *reconciler
	deafen     func() // the heartbeat, to this Locker's Observer and Log

	evictions evictions

	queues *waitQueues

	mu     sync.Mutex
	turns  map[string][]*turn // of a fair Locker, by key and in the order of their tickets
	holds  map[*hold]struct{}
	closed bool

	verifying clock.Timer   // the next check of the holds, or the one under way; nil: none
	empty     chan struct{} // closed when no hold is left; made by Close
	ending    context.Context
	end       context.CancelCauseFunc
	tasks     sync.WaitGroup
}

// ask is an AcquireRequest of one life.
type ask struct {
	AcquireRequest
	life *member.Life
}

var _ dblock.Locker = (*Locker)(nil)

// New makes a Locker of what it shares with others; o has its defaults.
func New[Of any](of *Share[Of], o Options) *Locker {
	l := &Locker{Backend: of.backend, member: of.Member, waits: of.waits, reconciler: of.reconciler, o: o, turns: make(map[string][]*turn), holds: make(map[*hold]struct{})}
	l.ending, l.end = context.WithCancelCause(context.Background())
	l.queues = &waitQueues{clock: o.Clock, ending: l.ending, byName: make(map[string]*waitQueue)}
	l.acquires[dblock.ModeExclusive] = l.acquiring(dblock.ModeExclusive, eachKeyOnce(l.acquireOf(KindExclusive)))
	l.acquires[dblock.ModeShared] = l.acquiring(dblock.ModeShared, checked(l.acquireOf(KindShared)))
	l.acquires[dblock.ModePermit] = l.acquiring(dblock.ModePermit, checked(l.acquireOf(KindPermits)))
	l.inTurn = l.acquiring(dblock.ModeExclusive, eachKeyOnce(l.acquireOf(KindExclusive)))
	l.tickets = merge.New(merge.Options[ask, int64]{
		Run: l.runTickets, Key: func(a ask) string { return a.Key }, Classify: l.Traits.Classify, Weight: askWeight, MaxWeight: l.Traits.maxWeight(), MaxQueue: o.MaxQueue,
		MaxBatch: o.MaxBatch, MaxInFlight: o.MaxInFlight, Patience: o.patience,
		Late: func(a ask, got merge.Answer[int64]) { l.late(dblock.ModeExclusive, a, got.Value != 0, got.Err) },
	})
	l.release = merge.New(merge.Options[returning, ReleaseResult]{
		Run: l.runRelease, Key: func(b returning) string { return b.Key }, Ends: func(returning) bool { return true }, Classify: l.Traits.Classify,
		Weight: returning.weight, MaxWeight: l.Traits.maxWeight(),
		MaxBatch: o.MaxBatch, MaxInFlight: o.MaxInFlight, Patience: o.patience,
	})
	l.deafen = l.member.Listen(member.Listener{Observer: o.Observer, Log: o.Log})
	return l
}

// acquiring makes a queue of acquisitions.
func (l *Locker) acquiring(mode dblock.Mode, run runAsks[AcquireResult]) *merge.Queue[ask, AcquireResult] {
	return merge.New(merge.Options[ask, AcquireResult]{
		Run: func(ctx context.Context, batch []ask, _ bool) ([]merge.Answer[AcquireResult], error) {
			return byLife(ctx, l, batch, run)
		},
		Key: func(a ask) string { return a.Key }, Ends: func(a ask) bool { return a.Instead != Handle{} },
		Late:     func(a ask, got merge.Answer[AcquireResult]) { l.late(mode, a, got.Value.Token != 0, got.Err) },
		Classify: l.Traits.Classify,
		Weight:   askWeight, MaxWeight: l.Traits.maxWeight(), MaxQueue: l.o.MaxQueue, MaxBatch: l.o.MaxBatch, MaxInFlight: l.o.MaxInFlight, Patience: l.o.patience,
	})
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
		return nil, ended(l.queues.lastSeen(r), sqlerr.NotSent(ctx))
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
		lock, refused, err := l.tryInTurn(ctx, r)
		return lock, unless(lock, refused, err)
	case r.Mode != dblock.ModeExclusive:
		lock, refused, err := l.atOnce(ctx, r)
		return lock, unless(lock, refused, err)
	}
	return l.tryAlone(ctx, r)
}

// tryAlone asks, unless another call of this process holds the key or queues for it.
func (l *Locker) tryAlone(ctx context.Context, r root.Request) (*dblock.Lock, error) {
	w, held := l.queues.enqueue(r, false)
	if held != nil {
		return nil, held
	}
	defer l.leave(w)
	lock, refused, err := l.ask(ctx, w, r)
	return lock, unless(lock, refused, err)
}

// unless is the error of a call that did not wait.
func unless(lock *dblock.Lock, refused *dblock.HeldError, err error) error {
	if lock == nil && err == nil {
		return refused
	}
	return err
}

// ended says who has the lock that was not acquired, and what ended the wait for it.
func ended(refused *dblock.HeldError, why error) error {
	if errors.Is(why, dblock.ErrClosed) {
		return why
	}
	told := *refused
	told.Wait = why
	return &told
}

// Close refuses further calls, ends the contexts of all locks, and waits until they are released. When
// ctx ends, it has the rest released in the background.
func (l *Locker) Close(ctx context.Context) error {
	defer l.deafen()
	l.mu.Lock()
	if l.empty == nil {
		l.closed = true
		l.empty = make(chan struct{})
		if len(l.holds) == 0 {
			close(l.empty)
		}
	}
	var all []*hold
	for h := range l.holds {
		all = append(all, h)
	}
	empty := l.empty
	l.mu.Unlock()
	l.queues.close()
	l.end(fmt.Errorf("%w", dblock.ErrClosed))
	tells := make([]func(), len(all))
	for i, h := range all {
		tells[i] = h.lose(dblock.ReasonClosed)
	}
	for _, tell := range tells {
		tell()
	}
	if err := clock.Await(ctx, empty, "locks are still in use"); err != nil {
		l.takeBack()
		return err
	}
	ctx, stop := clock.Late(ctx)
	defer stop()
	if err := clock.Await(ctx, clock.After(l.tasks.Wait), "operations are still under way"); err != nil {
		return err
	}
	var errs []error
	for _, acquire := range append(l.acquires[:], l.inTurn) {
		errs = append(errs, acquire.Close(ctx))
	}
	return errors.Join(append(errs, l.tickets.Close(ctx), l.release.Close(ctx))...)
}

// takeBack releases what callers still hold. Another Locker of the process may keep the member alive.
func (l *Locker) takeBack() {
	l.mu.Lock()
	holds := slices.Collect(maps.Keys(l.holds))
	l.mu.Unlock()
	for _, h := range holds {
		h.mu.Lock()
		released := h.why == dblock.ReasonReleased
		h.mu.Unlock()
		if !released {
			l.reconciler.add(h.life, l.o.Fair, true, h.backs()...)
		}
	}
}
