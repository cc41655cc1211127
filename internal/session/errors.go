package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// refusal names the holder of a lock that was not acquired, and what ended the wait for it.
func (c *callers) refusal(w *waiter, why error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := w.slot.heldError(w.r.Key)
	h.Wait = why
	return h
}

// explain turns an error into one of package dblock.
func (c *callers) explain(ctx context.Context, w *waiter, err error) error {
	if ctx.Err() != nil && !isNamed(err) {
		return c.refusal(w, ctxerr.Of(ctx))
	}
	return c.named(w.r.Key, err)
}

// isNamed reports whether an error is one of package dblock.
func isNamed(err error) bool {
	named := []error{dblock.ErrNotAcquired, dblock.ErrClosed, dblock.ErrOverloaded, dblock.ErrUnsupported, dblock.ErrUnavailable}
	return slices.ContainsFunc(named, func(name error) bool { return errors.Is(err, name) })
}

// named adds the key to an error. Nothing is locked after any of them: a lock that the server may
// have granted ends with its connection, or was released.
func (c *callers) named(key string, err error) error {
	if isNamed(err) {
		return err
	}
	what := fmt.Sprintf("lock %q: nothing is locked", key)
	return sqlerr.Wrap(c.driver.Classify(err).Harmless(), err, what, "")
}

// final are errors after which a call does not ask again. Some of them wrap a lost connection.
var final = []error{
	dblock.ErrNotAcquired, dblock.ErrClosed, dblock.ErrUnavailable, dblock.ErrUnsupported, dblock.ErrOverloaded, errNotSent,
}

// isRetryable reports whether a call may ask again: its connection ended, or the server gave no
// answer.
func (c *callers) isRetryable(err error) bool {
	switch c.driver.Classify(err) {
	case sqlerr.Retryable, sqlerr.Unresolved, sqlerr.Unavailable, sqlerr.Busy:
		return !slices.ContainsFunc(final, func(last error) bool { return errors.Is(err, last) })
	}
	return false
}
