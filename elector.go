package dblock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/clock"
)

// Elector is one candidate among those who campaign for the same key, in this process or others. The one who holds the
// key leads. Make it with NewElector. It is safe for concurrent use.
type Elector struct {
	locker Locker
	look   looker
	clock  clock.Clock
	key    string
	opts   []Option
	o      ElectorOptions

	running atomic.Bool

	mu   sync.Mutex
	term *term // nil: it does not lead
}

// ElectorOptions of an Elector. The zero value is good for use.
type ElectorOptions struct {
	// Label says for people who leads, as WithLabel does. Default: that of the Locker.
	Label string

	// Data is published beside the lock while this candidate leads, for example its address, and is what Leader and
	// Observe show of it: at most 64 KiB.
	Data []byte

	// Poll is how often Observe looks, give or take a half. Default 1 s; 10 ms to 1 min.
	Poll time.Duration

	// StandBack is for how long at most this candidate leaves the campaign to others once it has
	// resigned; it comes back as soon as another one leads, or has led. Default 2 s, which is long
	// enough for candidates that have to poll; at most 1 h.
	StandBack time.Duration

	// Failed is told of each error that Run goes on after: what kept it from campaigning for a while, and what fn returned
	// when its term had ended. Run waits for it, and it must not block. A panic of
	// its is ignored. Default: nothing is called.
	Failed func(err error)
}

// ErrResigned is the cause of a leader's context once Resign was called.
var ErrResigned = errors.New("dblock: resigned")

// looker is what an Elector needs of a Locker besides its locks.
type looker interface {
	Holder(ctx context.Context, key string) (HeldLock, error)
}

const (
	defaultElectorPoll = time.Second
	defaultStandBack   = 2 * time.Second
)

// NewElector makes a candidate for key. Its Locker is one of leases, as those of pglock, mysqllock and dblocktest, and
// stays its owner's; its TTL is how long it takes until another candidate leads in the place of one that died. Nothing is
// sent before Run.
//
// Errors: ErrInvalid; ErrUnsupported where the Locker has no tokens or can't tell who holds a key.
func NewElector(l Locker, key string, o ElectorOptions) (*Elector, error) {
	if isNil(l) {
		return nil, &InvalidError{"Locker", "it is nil"}
	}
	if !l.Caps().Fencing {
		return nil, fmt.Errorf("%w: the locks of a %T have no tokens to tell terms apart by: use leases", ErrUnsupported, l)
	}
	look, ok := l.(looker)
	if !ok {
		return nil, fmt.Errorf("%w: a %T has no method Holder to look for the leader with: use leases", ErrUnsupported, l)
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Elector{locker: l, look: look, clock: clockOf(l), key: key, o: o}
	if o.Label != "" {
		e.opts = append(e.opts, WithLabel(o.Label))
	}
	if o.Data != nil {
		e.opts = append(e.opts, WithData(o.Data))
	}
	if _, err := newRequest(1, key, e.opts); err != nil {
		return nil, err
	}
	return e, nil
}

func (o ElectorOptions) withDefaults() (ElectorOptions, error) {
	if o.Poll == 0 {
		o.Poll = defaultElectorPoll
	}
	if o.StandBack == 0 {
		o.StandBack = defaultStandBack
	}
	o.Data = bytes.Clone(o.Data)
	o.Failed = callback.Func1(nil, o.Failed)
	switch {
	case o.Poll < 10*time.Millisecond || o.Poll > time.Minute:
		return o, &InvalidError{"ElectorOptions.Poll", fmt.Sprintf("%v is not within 10ms to 1m", o.Poll)}
	case o.StandBack < 0 || o.StandBack > time.Hour:
		return o, &InvalidError{"ElectorOptions.StandBack", fmt.Sprintf("%v is not within 0 to 1h", o.StandBack)}
	}
	return o, nil
}

// The pauses between two tries to campaign. The longest is well below the usual TTL, so that a server that is back
// is soon noticed.
const (
	leastPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second
)

// Run campaigns, and calls fn while it leads, one term after the other, until ctx ends or fn
// returns of its own accord. A term is the fence of its lock: its token is larger than that of each
// term before, and a guard that checks it in the leader's transactions is what makes a leader
// harmless that was paused, and goes on before it knows that it has lost its term. LockOf(ctx) is
// its lock, for GuardedTx of the drivers.
//
// The context that fn is given ends with its term: context.Cause is a *LostError where the term was
// lost, ErrResigned after Resign, and ctx's cause where that has ended. Run waits for fn to return
// then, and gives back what it holds; fn is to return soon, or others lead beside it.
//
// What fn returns counts only during its term: Run returns it then, also nil. Run campaigns again,
// whatever fn returned, where the term was lost or resigned before, as errors of all kinds follow
// from that; and so it does where fn returns ErrFenced, or the *LostError of the term, which is how
// it may learn first that it leads no more. Such errors are told to ElectorOptions.Failed. Where fn
// panics, the lock is given back.
//
// Errors: fn's; ctx's cause once ctx has ended; ErrInvalid where this Elector runs already; and
// those of Acquire. Run tries again, at first within 75 ms and later within 3 s, after
// ErrUnavailable, ErrBusy, ErrConflict, ErrOverloaded, ErrOutcomeUnknown and ErrNotAcquired.
func (e *Elector) Run(ctx context.Context, fn func(ctx context.Context, term Fence) error) error {
	if fn == nil {
		return &InvalidError{"fn", "it is nil"}
	}
	if !e.running.CompareAndSwap(false, true) {
		return &InvalidError{"Elector", fmt.Sprintf("that of %q runs already: a second candidate is a second Elector", e.key)}
	}
	defer e.running.Store(false)
	tries := backoff{least: leastPause, most: mostPause}
	for {
		began := e.clock.Now()
		lock, err := e.locker.Acquire(ctx, e.key, e.opts...)
		switch {
		case err == nil:
			stop, resigned, err := e.lead(ctx, lock, fn)
			if stop {
				return err
			}
			if resigned {
				if err := e.standBack(ctx, lock); err != nil {
					return err
				}
				continue
			}
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !temporary(err):
			return err
		default:
			e.failed(err)
		}
		if e.clock.Now().Sub(began) > mostPause { // a term that was short counts as a try that failed: fn may be fenced off at once
			tries.tries = 0
		}
		if err := sleep(ctx, e.clock, tries.next()); err != nil {
			return err
		}
	}
}

// standBackPoll is how often a candidate that stands back looks whether another one has led. If all
// have resigned, so long there is no leader.
const standBackPoll = 50 * time.Millisecond

// standBack waits until another candidate leads, or has led, for a while.
func (e *Elector) standBack(ctx context.Context, was *Lock) error {
	before, _ := was.Fence()
	over := e.clock.Now().Add(e.o.StandBack)
	for every := max(min(e.o.StandBack/10, standBackPoll), time.Millisecond); ; {
		left := over.Sub(e.clock.Now())
		if left <= 0 {
			return nil
		}
		if err := sleep(ctx, e.clock, min(every, left)); err != nil {
			return err
		}
		h, err := e.look.Holder(ctx, e.key)
		if (err == nil || errors.Is(err, ErrNotHeld)) && h.Fence.Token > before.Token {
			return nil
		}
	}
}

func (e *Elector) failed(err error) {
	if e.o.Failed != nil {
		e.o.Failed(err)
	}
}
