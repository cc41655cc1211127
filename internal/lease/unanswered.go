package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/root"
)

// lateError is the error of a request whose statement took longer than its bound, while its caller
// still waits.
type lateError struct {
	error
	lateRequest
}

// lateRequest is a request that may still be granted.
type lateRequest struct {
	handle Handle
	inc    *member.Incarnation
}

func (e *lateError) Unwrap() error { return e.error }

// asLate returns the error of a request, as a lateError if it is one.
func asLate(ctx context.Context, err error, handle Handle, inc *member.Incarnation) error {
	if ctx.Err() == nil && errors.Is(err, dblock.ErrOutcomeUnknown) && errors.Is(err, context.DeadlineExceeded) {
		return &lateError{err, lateRequest{handle, inc}}
	}
	return err
}

// lateRequests are the requests of one waiting call whose statements took longer than their bound.
// The call asks again. What was granted late is released.
type lateRequests []lateRequest

// add reports whether a call goes on after an error: a request was late, and few were before.
func (l *lateRequests) add(ctx context.Context, err error) bool {
	var late *lateError
	if ctx.Err() != nil || !errors.As(err, &late) {
		return false
	}
	*l = append(*l, late.lateRequest)
	return len(*l) < tries
}

// mayBeGranted reports whether a late request may still be granted. Of an incarnation that is lost
// nothing is released, as its leases end by themselves: the server may grant one meanwhile.
func (q *requester) mayBeGranted(l lateRequest) bool {
	return l.inc.Lost() || q.reconciler.handles.knows(l.handle)
}

// ended returns the error of a call that waited. While a late request may still be granted, the
// outcome is unknown, whatever a later request was answered.
func (q *requester) ended(ctx context.Context, r root.Request, late lateRequests, err error) error {
	switch {
	case err == nil, errors.Is(err, dblock.ErrOutcomeUnknown), errors.Is(err, dblock.ErrClosed):
		return err
	case !slices.ContainsFunc(late, q.mayBeGranted):
		return err
	}
	const what = "%w: lock %q: no reply to an earlier request; if the lock was granted, dblock releases it"
	if ctx.Err() != nil {
		return fmt.Errorf(what+": %w", dblock.ErrOutcomeUnknown, r.Key, ctxerr.Of(ctx))
	}
	return fmt.Errorf(what+": the last one: %v", dblock.ErrOutcomeUnknown, r.Key, err)
}
