package dblock

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/ctxerr"
)

// Lock is one acquisition, of one key or of a set of keys. It is safe for concurrent use.
type Lock struct {
	held     *held
	acquirer context.Context
	own      scope

	over   error                   // why it has ended; these are guarded by held.mu
	ctx    context.Context         // made on request, as most callers that lock a key for a moment don't use it
	cancel context.CancelCauseFunc // nil: it was not requested

	release sync.Once
	ended   error // what Release said
}

// Fence identifies one acquisition to guards. Token is larger than that of every earlier
// acquisition of Key; shared holders have the same token until the key is held exclusively again.
// Handle is a random number that no other acquisition has.
type Fence struct {
	Key    string
	Token  int64
	Handle [16]byte
	Mode   Mode
}

var errReleased = errors.New("dblock: the lock was released")

// Key returns the key of the lock; of a set the first key, in the order of their bytes.
func (l *Lock) Key() string { return l.held.keys[0] }

// Keys returns all keys of the lock, in the order of their bytes.
func (l *Lock) Keys() []string { return slices.Clone(l.held.keys) }

// Context returns a context that ends when the lock is lost or released. If the lock was lost,
// context.Cause is a *LostError. The context has the values of the acquirer's context, and not its
// end. Calls with it, or with a child, that acquire the same key again return a *DeadlockError, or
// a child of this lock with WithReentrant.
func (l *Lock) Context() context.Context {
	l.held.mu.Lock()
	defer l.held.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(context.WithValue(context.WithoutCancel(l.acquirer), innermost{}, &l.own))
		if l.over != nil {
			l.cancel(l.over)
		}
	}
	return l.ctx
}

// end ends the lock's context, now or when it is made; held.mu is held.
func (l *Lock) end(why error) {
	if l.over != nil {
		return
	}
	l.over = why
	if l.cancel != nil {
		l.cancel(why)
	}
}

// Bind returns a context that ends with ctx or with the lock, whichever comes first. If the lock
// has ended, the context has ended too. Its memory is freed when ctx or the lock ends: for many
// calls under one lock, pass a ctx that ends.
func (l *Lock) Bind(ctx context.Context) context.Context {
	bound, stop := l.bind(ctx)
	context.AfterFunc(bound, stop)
	return bound
}

// bind is Bind with a stop function that frees the context's memory.
func (l *Lock) bind(ctx context.Context) (bound context.Context, stop func()) {
	bound, cancel := context.WithCancelCause(context.WithValue(ctx, innermost{}, &scope{l, scopeOf(ctx), l.own.up}))
	own := l.Context()
	if own.Err() != nil { // the callback below runs on another goroutine, some time later
		cancel(context.Cause(own))
		return bound, func() {}
	}
	unhook := context.AfterFunc(own, func() { cancel(context.Cause(own)) })
	return bound, func() {
		unhook()
		cancel(context.Canceled)
	}
}

// runUnder is documented as root.RunUnder.
func (l *Lock) runUnder(ctx context.Context, f func(context.Context) error) error {
	bound, stop := l.bind(ctx)
	defer stop()
	if err := l.lostError(); err != nil {
		return err
	}
	err := f(bound)
	lost := l.lostError()
	switch {
	case err == nil, lost == nil, errors.Is(err, ErrLost):
		return err
	case errors.Is(err, ErrOutcomeUnknown), errors.Is(err, ErrTxEnded):
		return fmt.Errorf("%w (%v)", err, lost)
	default:
		return fmt.Errorf("%w: %w", lost, err)
	}
}

// lostError is nil while the lock is held. A released lock has the reason ReasonReleased.
func (l *Lock) lostError() error {
	l.held.hold.Check()
	l.held.mu.Lock()
	defer l.held.mu.Unlock()
	switch {
	case l.over == nil:
		return nil
	case l.over == errReleased:
		return &LostError{l.Key(), ReasonReleased}
	}
	return l.over
}

// Fence returns the fence that guards check; false if the kind of lock has no token, or for a set
// of keys, each of which has a fence of its own.
func (l *Lock) Fence() (Fence, bool) {
	fences := l.held.hold.Fences()
	if len(fences) != 1 {
		return Fence{}, false
	}
	return fences[0], true
}

// Fences returns the fences that guards check, one for each key; none if the kind of lock has no
// token.
func (l *Lock) Fences() []Fence { return l.held.hold.Fences() }

// ValidUntil returns the time until which this process may trust the lock without asking the
// server. Heartbeats move it.
func (l *Lock) ValidUntil() time.Time { return l.held.hold.ValidUntil() }

// validUntil is ValidUntil with the reason for which the lock ends then.
func (l *Lock) validUntil() (time.Time, Reason) {
	until := l.ValidUntil()
	if h, ok := l.held.hold.(interface{ EndsAt() time.Time }); ok && h.EndsAt().Equal(until) {
		return until, ReasonTimeUp
	}
	return until, ReasonExpired
}

// ExpireIn ends the lock d from now, regardless of heartbeats: at least 1 ms, and never later than
// WithMaxHold allows. Another call moves the end again, in either direction; concurrent calls run
// one after the other. Of several keys all end, or none does. The lock is then lost with the reason
// ReasonTimeUp, unless it is released before. This process ends it earlier than the database does,
// by LeaseOptions.Margin and at most by a quarter of d.
//
// Errors: ErrLost (also after Release, and if the lock ended while the server had not replied:
// this process counts d from the call on), ErrInvalid, ErrUnsupported. ErrBusy and ErrUnavailable:
// nothing was written, the end is what it was, as it is if ctx had ended before: the error is ctx's
// then. ErrOutcomeUnknown: the lock ends d from now at the latest, and no later call moves that end
// out.
func (l *Lock) ExpireIn(ctx context.Context, d time.Duration) error {
	if d < time.Millisecond {
		return &InvalidError{"duration", fmt.Sprintf("%v is shorter than 1ms", d)}
	}
	if err := l.lostError(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("dblock: the end of %q was not moved: nothing was sent: %w", l.Key(), ctxerr.Of(ctx))
	}
	return l.held.hold.ExpireIn(ctx, d)
}

// Release releases the lock. It works under a context that has ended, and a second call returns
// what the first one did. It waits about 1 s for the server, and for a session lock longer (see
// SessionOptions of pglock and mysqllock). If the answer does not come in time,
// or a guarded transaction is still open, it is nil too: the lock has ended for this process, and
// the release is repeated in the background until the database confirms it.
//
// If the server refuses the release of a lease (a right that was revoked, a trigger that raises an
// error), the error wraps the server's. Then the lock has ended for this process, and the server
// still has it: the release is repeated in the background, and the refusal is written to the Log.
//
// Errors: a *LostError (ErrLost) if the lock had been lost before: another holder may have worked
// at the same time. Release compares ValidUntil with the clock, and the server's reply says whether
// the lock was still held; for a Quorum, on a majority of the nodes. A session lock counts as lost
// unless the server confirms in time that it was held until now.
func (l *Lock) Release(ctx context.Context) error {
	if ctx == nil { // a panic here would keep the lock
		ctx = context.Background()
	}
	l.release.Do(func() { l.ended = l.held.remove(ctx, l) })
	return l.ended
}

// LockOf returns the innermost lock that ctx belongs to: that of Lock.Context, Lock.Bind, Do, or
// the term of an Elector; false if there is none.
func LockOf(ctx context.Context) (lock *Lock, ok bool) {
	if in := scopeOf(ctx); in != nil {
		return in.lock, true
	}
	return nil, false
}

// hold is a backend's side of a lock.
type hold = contract.Hold[Fence]

// held is what reentrant locks of one key share.
type held struct {
	keys    []string
	owner   any // the Locker
	mode    Mode
	permits int
	where   [4]uintptr
	hold    hold

	mu   sync.Mutex
	refs []*Lock // those that are not released
	lost error

	// Storage for what nearly all have one of: so that a lock is one allocation.
	key   [1]string
	ref   [1]*Lock
	first Lock
}

// innermost is the context key of the scope.
type innermost struct{}

// scope is what a context belongs to: a lock, and the scopes in which that was acquired and bound.
type scope struct {
	lock  *Lock
	bound *scope // of the context that Bind was given; nil: none, or that of Lock.Context
	up    *scope // of the acquirer's context
}

func scopeOf(ctx context.Context) *scope {
	in, _ := ctx.Value(innermost{}).(*scope)
	return in
}

// further adds the scopes further up to those that were seen.
func (s *scope) further(seen []*scope) []*scope {
	for _, up := range []*scope{s.bound, s.up} {
		if up != nil && !slices.Contains(seen, up) {
			seen = append(seen, up)
		}
	}
	return seen
}

// newLock makes the Lock of a hold. The owner is the Locker. The caller calls lose when the lock is
// lost.
func newLock(ctx context.Context, owner any, r request, hold hold) (l *Lock, lose func(Reason)) {
	h := &held{keys: r.Keys, owner: owner, mode: r.Mode, permits: r.Permits, hold: hold, where: r.Where, key: [1]string{r.Key}}
	if h.keys == nil {
		h.keys = h.key[:]
	}
	h.refs = h.ref[:0]
	h.add(ctx, &h.first)
	return &h.first, h.lose
}

// add makes l one more Lock of the hold.
func (h *held) add(ctx context.Context, l *Lock) {
	l.held, l.acquirer = h, ctx
	l.own = scope{lock: l, up: scopeOf(ctx)}
	h.refs = append(h.refs, l)
}

// remove ends one Lock; the last one releases the hold.
func (h *held) remove(ctx context.Context, l *Lock) error {
	h.hold.Check()
	h.mu.Lock()
	l.end(errReleased)
	h.refs = slices.DeleteFunc(h.refs, func(ref *Lock) bool { return ref == l })
	last, lost := len(h.refs) == 0, h.lost
	h.mu.Unlock()
	if last {
		err := h.hold.Release(ctx, lost != nil)
		h.mu.Lock()
		lost = h.lost // the release may have shown the loss
		h.mu.Unlock()
		if lost == nil {
			return err
		}
	}
	return lost
}

func (h *held) lose(why Reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil {
		return
	}
	h.lost = &LostError{h.keys[0], why}
	for _, l := range h.refs {
		l.end(h.lost)
	}
}

// reenter looks in ctx for a lock of the same owner and of any of the keys. It returns a counted
// child of that lock if r asks for one, else a *DeadlockError; nothing if there is no such lock.
func reenter(ctx context.Context, owner any, r request) (*Lock, error) {
	in := scopeOf(ctx)
	if in == nil {
		return nil, nil
	}
	var space [8]*scope
	for seen, n := append(space[:0], in), 0; n < len(seen); n++ {
		seen = seen[n].further(seen)
		h := seen[n].lock.held
		if h.owner != owner || (h.mode == ModePermit) != (r.Mode == ModePermit) {
			continue
		}
		i := slices.IndexFunc(h.keys, func(key string) bool { return slices.Contains(r.Set(), key) })
		if i < 0 {
			continue
		}
		if again, live := h.again(ctx, r); live {
			if again != nil {
				return again, nil
			}
			return nil, &DeadlockError{Key: h.keys[i], Mode: h.mode, Where: site(h.where)}
		}
	}
	return nil, nil
}

// again makes a child if r asks for one of the same mode; live is false once the hold has ended.
func (h *held) again(ctx context.Context, r request) (child *Lock, live bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil || len(h.refs) == 0 {
		return nil, false
	}
	if !r.Reentrant || h.mode != r.Mode || h.permits != r.Permits || !slices.Equal(h.keys, r.Set()) {
		return nil, true
	}
	child = new(Lock)
	h.add(ctx, child)
	return child, true
}

// site names the innermost call that is not dblock's own.
func site(pcs [4]uintptr) string {
	frames := runtime.CallersFrames(pcs[:])
	for {
		frame, more := frames.Next()
		if !more || !own.MatchString(frame.Function) {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
	}
}

// own matches the functions of the packages that a call goes through on its way here.
var own = regexp.MustCompile(`^github\.com/dblock-go/dblock(/internal/lease|/internal/session|/internal/root|/pglock|/mysqllock|/dblocktest)?\.`)
