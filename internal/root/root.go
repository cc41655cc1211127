// Package root passes on what the root package does for packages of this module and does not
// export: requests from options, locks from what a backend holds, and checks that all packages
// share.
package root

import (
	"context"
	"log/slog"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/contract"
)

type (
	// Request is one acquisition, after its options were applied and checked.
	Request = contract.Request[dblock.Mode]

	// Hold is a backend's side of a lock.
	Hold = contract.Hold[dblock.Fence]
)

// functions is what the root package has put into contract.Root.
type functions interface {
	NewRequest(key string, opts []dblock.Option) (Request, error)
	NewSetRequest(keys []string, opts []dblock.Option) (Request, error)
	NewLock(ctx context.Context, owner any, r Request, h Hold) (l *dblock.Lock, lose func(dblock.Reason))
	Reenter(ctx context.Context, owner any, r Request) (*dblock.Lock, error)
	RunUnder(ctx context.Context, l *dblock.Lock, f func(context.Context) error) error
	GuardObserver(o dblock.Observer, log *slog.Logger) dblock.Observer
	WaitBound(w dblock.TxWait) (d time.Duration, bounded bool)
	CheckText(field, s string, least, most int) error
	CheckLimit(limit int) error
}

// of panics at the start of each program if the root package lacks one of the methods.
var of = contract.Root.(functions)

// NewRequest applies options and refuses a request that makes no sense (*dblock.InvalidError). It
// notes the callers of its caller, which has to be Acquire or TryAcquire.
func NewRequest(key string, opts []dblock.Option) (Request, error) {
	return of.NewRequest(key, opts)
}

// NewSetRequest is NewRequest for 1 to dblock.MaxSetKeys different keys, in dblock.ModeExclusive.
func NewSetRequest(keys []string, opts []dblock.Option) (Request, error) {
	return of.NewSetRequest(keys, opts)
}

// NewLock makes the Lock of h. The owner is the Locker. The caller calls lose when the lock is
// lost.
func NewLock(ctx context.Context, owner any, r Request, h Hold) (l *dblock.Lock, lose func(dblock.Reason)) {
	return of.NewLock(ctx, owner, r, h)
}

// Reenter looks in ctx for a lock of the same owner and of one of the keys of r. If there is one,
// it returns a counted child of it, if r asks for one, else a *dblock.DeadlockError. If there is
// none, both results are nil.
func Reenter(ctx context.Context, owner any, r Request) (*dblock.Lock, error) {
	return of.Reenter(ctx, owner, r)
}

// RunUnder calls f with a context that ends with ctx or with the lock, as Lock.Bind does, and frees
// that context afterwards. If the lock ended before f returned an error, that error also matches
// dblock.ErrLost. ErrLost says that nothing was written, so ErrOutcomeUnknown and ErrTxEnded only
// name the loss in their text.
func RunUnder(ctx context.Context, l *dblock.Lock, f func(context.Context) error) error {
	return of.RunUnder(ctx, l, f)
}

// GuardObserver returns an Observer whose functions call those of o, and return if these panic or
// exit. A panic is written to log, which may be nil. Functions that are nil stay nil.
func GuardObserver(o dblock.Observer, log *slog.Logger) dblock.Observer {
	return of.GuardObserver(o, log)
}

// WaitBound returns the bound of dblock.WaitAtMost; false for other waits.
func WaitBound(w dblock.TxWait) (d time.Duration, bounded bool) { return of.WaitBound(w) }

// CheckText refuses text that one of the databases could not store as it is: Postgres takes neither
// NUL nor bytes that are not UTF-8, so neither database gets them.
func CheckText(field, s string, least, most int) error {
	return of.CheckText(field, s, least, most)
}

// CheckLimit refuses a number of permits that no semaphore can have.
func CheckLimit(limit int) error { return of.CheckLimit(limit) }
