package dblock

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/internal/callback"
)

// term is the time for which a candidate leads.
type term struct {
	fence Fence
	ctx   context.Context
	end   context.CancelCauseFunc
	done  chan struct{} // closed once the lock was released
}

// lead runs fn under the lock; stop reports that Run is to return err.
func (e *Elector) lead(
	ctx context.Context, lock *Lock, fn func(ctx context.Context, term Fence) error,
) (stop, resigned bool, err error) {
	var failed error
	defer func() { // after the lock was released
		if failed != nil {
			e.failed(failed)
		}
	}()
	t := &term{done: make(chan struct{})}
	t.fence, _ = lock.Fence()
	t.ctx, t.end = context.WithCancelCause(lock.Bind(ctx))
	e.mu.Lock()
	e.term = t
	e.mu.Unlock()
	defer func() { // if fn panics, too
		t.end(context.Canceled)
		_ = lock.Release(ctx)
		e.mu.Lock()
		e.term = nil
		e.mu.Unlock()
		close(t.done)
	}()
	if t.ctx.Err() == nil {
		err = callback.Sound(fn(t.ctx, t.fence))
	}
	why := context.Cause(t.ctx)
	if why == nil { // fn may have learnt of the loss a moment before t.ctx did
		why = lock.lostError()
	}
	switch {
	case why == nil && !t.ends(err):
		return true, false, err
	case err != nil && !errors.Is(err, why) && !errors.Is(err, context.Canceled):
		failed = err
	}
	if ctx.Err() != nil {
		return true, false, context.Cause(ctx)
	}
	return false, errors.Is(why, ErrResigned), nil
}

// ends reports whether an error says that the term is over.
func (t *term) ends(err error) bool {
	var lost *LostError
	return errors.Is(err, ErrFenced) || errors.As(err, &lost) && lost.Key == t.fence.Key
}

// Leading returns the term of this candidate; false if it does not lead, as far as it knows.
func (e *Elector) Leading() (term Fence, leads bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil || e.term.ctx.Err() != nil {
		return Fence{}, false
	}
	return e.term.fence, true
}

// Resign gives up the term of this candidate: the context that fn was given ends with ErrResigned,
// and Resign waits, while ctx lives, until fn has returned and the lock was released. The
// candidate then yields for a while, so that another one leads (see ElectorOptions.YieldTime).
// Called by fn itself it would wait for itself; with the context that fn was given it returns at
// once, with ErrResigned.
//
// Errors: ErrNotHeld if this candidate does not lead; ctx's cause if that ended first: the
// term has ended all the same.
func (e *Elector) Resign(ctx context.Context) error {
	e.mu.Lock()
	t := e.term
	e.mu.Unlock()
	if t == nil {
		return fmt.Errorf("%w: this candidate does not lead %q", ErrNotHeld, e.key)
	}
	t.end(ErrResigned)
	if why := context.Cause(t.ctx); !errors.Is(why, ErrResigned) {
		return fmt.Errorf("%w: this candidate leads %q no more: %w", ErrNotHeld, e.key, why)
	}
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
