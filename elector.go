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

// Elector is one candidate of several that try to acquire the same key, in this process or others.
// The holder of the key leads. Make it with NewElector. It is safe for concurrent use.
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
	// Label names the leader for people, as WithLabel does. Default: the label of the Locker.
	Label string

	// Data is stored beside the lock while this candidate leads, for example its address. Leader
	// and Observe return it. At most 64 KiB.
	Data []byte

	// Poll is the interval at which Observe looks, give or take a half. Default 1 s; 10 ms to 1
	// min.
	Poll time.Duration

	// YieldTime is for how long this candidate does not try to lead after it has resigned. It tries
	// earlier if another candidate leads, or has led. Default 2 s, which is long enough for
	// candidates that poll; at most 1 h.
	YieldTime time.Duration

	// Failed is called with each error after which Run continues: an error that kept it from trying
	// to lead for a while, or one that fn returned after its term had ended. Run waits for it, so
	// it must not block. Its panics are ignored. Default: nothing is called.
	Failed func(err error)
}

// ErrResigned is the cause of a leader's context after Resign.
var ErrResigned = errors.New("dblock: resigned")

// looker is what an Elector needs of a Locker besides its locks.
type looker interface {
	Holder(ctx context.Context, key string) (HeldLock, error)
}

const (
	defaultElectorPoll = time.Second
	defaultYieldTime   = 2 * time.Second
)

// NewElector makes a candidate for key. The Locker is a LeaseLocker of pglock, mysqllock or
// dblocktest, and the caller closes it. If the leader dies, another candidate leads within the
// Locker's TTL. Nothing is sent before Run.
//
// Errors: ErrInvalid; ErrUnsupported if the Locker has no tokens or can't read the holder of a key.
func NewElector(l Locker, key string, o ElectorOptions) (*Elector, error) {
	if isNil(l) {
		return nil, &InvalidError{"Locker", "it is nil"}
	}
	if !l.Caps().Fencing {
		return nil, fmt.Errorf("%w: the locks of a %T have no tokens that distinguish terms: use leases", ErrUnsupported, l)
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
	if o.YieldTime == 0 {
		o.YieldTime = defaultYieldTime
	}
	o.Data = bytes.Clone(o.Data)
	o.Failed = callback.Func1(nil, o.Failed)
	switch {
	case o.Poll < 10*time.Millisecond || o.Poll > time.Minute:
		return o, &InvalidError{"ElectorOptions.Poll", fmt.Sprintf("%v is not within 10ms to 1m", o.Poll)}
	case o.YieldTime < 0 || o.YieldTime > time.Hour:
		return o, &InvalidError{"ElectorOptions.YieldTime", fmt.Sprintf("%v is not within 0 to 1h", o.YieldTime)}
	}
	return o, nil
}

// The pauses between two tries to lead. The longest is well below the usual TTL, so that a server
// that is back is soon noticed.
const (
	leastPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
)

// Run tries to lead, and calls fn while it leads, one term after the other, until ctx ends or fn
// returns during its term. A term is the fence of its lock: its token is larger than that of each
// term before. A leader that was paused may go on before it knows that it has lost its term: a
// guard that checks the fence in the leader's transactions makes that harmless. LockOf(ctx) returns
// the lock, for GuardedTx of pglock and mysqllock.
//
// The context of fn ends with the term: context.Cause is a *LostError if the term was lost,
// ErrResigned after Resign, and the cause of ctx if ctx has ended. Run then waits until fn returns,
// and releases the lock. A function that returns late may overlap with the next leader.
//
// If fn returns during its term, Run returns its error, also nil. Run tries to lead again if the
// term was lost or resigned before, or if fn returns ErrFenced or the *LostError of the term; it
// passes the error to ElectorOptions.Failed. If fn panics, Run releases the lock.
//
// Errors: that of fn; the cause of ctx once ctx has ended; ErrInvalid if this Elector runs already;
// and those of Acquire. After ErrUnavailable, ErrBusy, ErrConflict, ErrOverloaded,
// ErrOutcomeUnknown and ErrNotAcquired Run tries again, at first within 75 ms and later within 3 s.
func (e *Elector) Run(ctx context.Context, fn func(ctx context.Context, term Fence) error) error {
	if fn == nil {
		return &InvalidError{"fn", "it is nil"}
	}
	if !e.running.CompareAndSwap(false, true) {
		return &InvalidError{"Elector", fmt.Sprintf("that of %q runs already: a second candidate is a second Elector", e.key)}
	}
	defer e.running.Store(false)
	tries := backoff{least: leastPause, max: maxPause}
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
				if err := e.yield(ctx, lock); err != nil {
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
		if e.clock.Now().Sub(began) > maxPause { // a term that was short counts as a try that failed: fn may be fenced off at once
			tries.tries = 0
		}
		if err := sleep(ctx, e.clock, tries.next()); err != nil {
			return err
		}
	}
}

// yieldPoll is how often a candidate that stands back looks whether another one has led. If all
// have resigned, so long there is no leader.
const yieldPoll = 50 * time.Millisecond

// yield waits until another candidate leads, or has led, for a while.
func (e *Elector) yield(ctx context.Context, was *Lock) error {
	before, _ := was.Fence()
	over := e.clock.Now().Add(e.o.YieldTime)
	for every := max(min(e.o.YieldTime/10, yieldPoll), time.Millisecond); ; {
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
