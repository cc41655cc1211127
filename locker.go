package dblock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Locker acquires locks of one kind, from one database. It is safe for concurrent use. One Locker
// for each process is enough, and batches best. Only packages of this module make Locks, so another
// implementation wraps one of theirs.
type Locker interface {
	// Acquire waits for the lock of key while ctx lives. ctx bounds the wait and never the hold.
	//
	// Errors: if ctx ends the wait, a *HeldError that matches ErrNotAcquired and the context's
	// error. Before that, these end it, and no others:
	//   - ErrOutcomeUnknown: a request got no reply, also because ctx ended meanwhile. If the lock
	//     was granted, it is released within two heartbeats.
	//   - ErrUnavailable, ErrOverloaded, ErrClosed
	//   - ErrInvalid, ErrDeadlock, ErrLimit, ErrUnsupported, ErrPermission, ErrSchema
	//   - other errors of the server
	//
	// ErrBusy and ErrConflict do not end the wait for a lease: while another transaction keeps a
	// row locked, or no connection is free, Acquire tries again until ctx ends. For a lock of a
	// session they end it. docs/locks.md has the same list.
	Acquire(ctx context.Context, key string, opts ...Option) (*Lock, error)

	// TryAcquire never waits for a holder: if there is one, it returns a *HeldError, which matches
	// ErrNotAcquired. Other errors are those of Acquire, ErrBusy and ErrConflict.
	TryAcquire(ctx context.Context, key string, opts ...Option) (*Lock, error)

	// Caps says what this kind of lock promises.
	Caps() Caps

	// Close refuses further calls, ends the contexts of all locks that are held, and waits, while
	// ctx lives, until they are released. What they held is released, also when ctx ends.
	Close(ctx context.Context) error
}

// Caps says what a kind of lock promises. A call for anything else returns ErrUnsupported.
type Caps struct {
	Fencing                bool // Lock.Fence has a token that only grows, and guards check it.
	Shared                 bool // WithShared.
	Permits                bool // WithPermits.
	Fair                   bool // callers are served in the order of their calls, across processes.
	MaxHold                bool // WithMaxHold, WithoutRenewal and Lock.ExpireIn.
	SurvivesConnectionLoss bool // a lock outlives the connection that acquired it.
	PoolerSafe             bool // works behind a pooler in transaction mode, such as PgBouncer.

	// TrustedFor is for how long a process trusts a lock after its last heartbeat: the TTL less the
	// Margin. 0: there is no such bound.
	TrustedFor time.Duration

	// Durable reports whether granted locks survive a crash of the server, by its settings when the
	// Locker was made. If not, NotDurable names the setting.
	Durable    bool
	NotDurable string // for people, for example "fsync = off"; empty if Durable
}

// Do acquires the lock of key, runs fn, and releases the lock, also if fn panics. The context of fn
// ends with ctx, and when the lock is lost.
//
// The error is that of fn. If the lock was lost before fn returned, it also matches ErrLost:
// another holder may have worked at the same time as fn, unless a guard checked the lock.
func Do(ctx context.Context, l Locker, key string, fn func(context.Context, *Lock) error, opts ...Option) (err error) {
	if fn == nil {
		return &InvalidError{"fn", "it is nil"}
	}
	lock, err := l.Acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release(ctx)) }()
	bound, stop := lock.bind(ctx)
	defer stop()
	return fn(bound, lock)
}

// MaxLockKeyBytes is how long the key of a lock may be, in bytes of UTF-8.
const MaxLockKeyBytes = 512

// Errors of locks.
var (
	// ErrNotAcquired: another caller holds the lock. The error is a *HeldError.
	ErrNotAcquired = errors.New("dblock: not acquired")

	// ErrLost: the lock was lost before it was released. The error is a *LostError, and also the
	// cause of the lock's context.
	ErrLost = errors.New("dblock: lock lost")

	// ErrNotHeld: the key is not held, or not with that token.
	ErrNotHeld = errors.New("dblock: not held")

	// ErrFenced: a guard found that the caller no longer holds the lock. Roll the transaction back.
	ErrFenced = errors.New("dblock: fenced off")

	// ErrDeadlock: the caller holds the lock itself, further up in its context. The error is a
	// *DeadlockError.
	ErrDeadlock = errors.New("dblock: would wait for itself")

	// ErrLimit: the semaphore has another number of permits than the call's limit. The error is a
	// *LimitError. Nothing was written.
	ErrLimit = errors.New("dblock: another limit")

	// ErrInvalid: an argument or an option is invalid. The error is an *InvalidError. Nothing was
	// sent.
	ErrInvalid = errors.New("dblock: invalid")
)

// InvalidError says which argument is invalid, and why. It matches ErrInvalid.
type InvalidError struct {
	Field  string // for example "key" or "LeaseOptions.TTL"
	Reason string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("dblock: invalid %s: %s", e.Field, e.Reason)
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }
