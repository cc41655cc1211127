package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// refusal says who has a lock that was not acquired, and what ended the wait for it.
func (l *Locker) refusal(p *place, why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := p.sl.held(p.r.Key)
	h.Wait = why
	return h
}

// explain puts an error into the words of package dblock.
func (l *Locker) explain(ctx context.Context, p *place, err error) error {
	if ctx.Err() != nil && !isNamed(err) {
		return l.refusal(p, context.Cause(ctx))
	}
	return l.named(p.r.Key, err)
}

// isNamed tells that an error is in the words of package dblock.
func isNamed(err error) bool {
	named := []error{dblock.ErrNotAcquired, dblock.ErrClosed, dblock.ErrOverloaded, dblock.ErrUnsupported, dblock.ErrUnavailable}
	return slices.ContainsFunc(named, func(name error) bool { return errors.Is(err, name) })
}

// named says which lock an error is about. Nothing is locked after any of them: what the server may have granted ends with its connection,
// or was given back.
func (l *Locker) named(key string, err error) error {
	if isNamed(err) {
		return err
	}
	what := fmt.Sprintf("lock %q: nothing is locked", key)
	return sqlerr.Wrap(l.engine.Classify(err).Harmless(), err, what, "")
}
