package attempt

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock"
)

// nestedWait bounds how long an update waits for a row's lock within another one that keeps others waiting.
const nestedWait = time.Second

// depthKey is for the number of attempts, one within the other, that keep others waiting: they hold a lock, or
// are at the front of a row's wait queue.
type depthKey struct{}

func depthOf(ctx context.Context) int {
	depth, _ := ctx.Value(depthKey{}).(int)
	return depth
}

// LockWait bounds the wait for a lock that an attempt takes; the zero value: as long as the server waits. Within
// an attempt of another update that keeps others waiting it is a second. Two that lock their rows in
// opposite orders would wait for each other, and no server sees that, because each uses several
// connections.
func LockWait(ctx context.Context) dblock.TxWait {
	if depthOf(ctx) > 1 {
		return dblock.WaitAtMost(nestedWait)
	}
	return dblock.TxWait{}
}

// crossedError is for a nested update that did not get its lock in time. The outermost one rolls back and is tried
// again.
type crossedError struct{ err error }

func (e *crossedError) Error() string { return e.err.Error() }

func (e *crossedError) Unwrap() error { return e.err }

// crossed marks the error of a nested update that waited for a lock in vain.
func (p *Plan) crossed(err error) error {
	if p.nested && errors.Is(err, dblock.ErrNotAcquired) {
		return &crossedError{err}
	}
	return err
}
