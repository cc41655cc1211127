package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// CallHook calls a hook of the host's. One that panics, or ends its goroutine, has failed: the
// batch of others would end with it.
func CallHook(hook func() error) (err error) {
	if p := callback.Try(func() { err = callback.Sound(hook()) }); p != nil {
		return &HookError{fmt.Errorf("the hook %w", p)}
	}
	return err
}

var (
	// ErrHookEnded: the transaction of a hook has ended. It is not known whether it was committed.
	ErrHookEnded error = &HookError{errors.New("the hook has returned no error, and its transaction has ended")}
	// ErrHookSwallowed: a statement of a hook has failed, and so has the transaction.
	ErrHookSwallowed error = &HookError{errors.New("the hook has returned no error, and one of its statements has failed")}
	// ErrHookOpen: the connection takes no other statement.
	ErrHookOpen error = &HookError{errors.New("the hook has returned, and has not read the rows of one of its statements: read or close them")}
)

// HookFailed returns the error of a hook: one order of the batch may be to blame, unless the
// database said that none is, or the connection is gone. A key of the host's that is taken is not
// one of ours, nor is a table that is missing.
func HookFailed(err error, is sqlerr.Class) error {
	var hook *HookError
	if errors.As(err, &hook) {
		return err
	}
	switch is {
	case sqlerr.Busy:
		return &HookBusy{err}
	case sqlerr.Retryable, sqlerr.Unavailable, sqlerr.Unresolved, sqlerr.Overloaded:
		return err
	}
	return &HookError{err}
}

// HookEndedItself reports whether a hook's error is of a context of its own, while the batch's goes
// on. The driver may have closed the connection then. Nothing was committed.
func HookEndedItself(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

type hookBriefly struct{}

// HookBriefly is a context in which a hook's statements wait for a lock briefly. Otherwise they
// wait for about a second.
func HookBriefly(ctx context.Context) context.Context {
	return context.WithValue(ctx, hookBriefly{}, true)
}

// HookContext is the context for a hook: brief if it is to wait briefly.
func HookContext(ctx context.Context) context.Context {
	if ctx.Value(hookBriefly{}) != nil {
		return Briefly(ctx)
	}
	return Patiently(ctx)
}

// HookError is what a hook said of its own accord.
type HookError struct{ Err error }

func (e *HookError) Error() string { return e.Err.Error() }

func (e *HookError) Unwrap() error { return e.Err }

// HookBusy is a statement of a hook's that did not get a lock in time.
type HookBusy struct{ Err error }

func (e *HookBusy) Error() string { return e.Err.Error() }

func (e *HookBusy) Unwrap() error { return e.Err }
