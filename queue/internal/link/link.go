// Package link passes on what package queue does for its drivers and does not export.
package link

import (
	"context"
	"fmt"
	"slices"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// functions is what package queue has put into driver.Queue.
type functions interface {
	NewQueue(o queue.Options, open func() (driver.Driver, error)) (*queue.Queue, error)
	EnqueueIn(ctx context.Context, q *queue.Queue, tx *driver.CallerTx, tasks []queue.Task) ([]queue.ID, error)
	Driver(q *queue.Queue) driver.Driver
	InTx(begin driver.Begin) queue.HandlerOption
	TxOf(ctx context.Context) any
}

// of panics at the start of each program if package queue lacks one of the methods.
var of = driver.Queue.(functions)

// NewQueue makes a Queue on the engine that open returns, which the Queue closes in the end. It
// calls open once the options are found valid.
func NewQueue(o queue.Options, open func() (driver.Driver, error)) (*queue.Queue, error) {
	return of.NewQueue(o, open)
}

// EnqueueIn is Queue.EnqueueMany in a transaction of the caller's.
func EnqueueIn(ctx context.Context, q *queue.Queue, tx *driver.CallerTx, tasks []queue.Task) ([]queue.ID, error) {
	return of.EnqueueIn(ctx, q, tx, tasks)
}

// HandleTx is queue.Handle for handlers that work in the transaction with which their jobs end.
func HandleTx[T, Tx any](
	q *queue.Queue, kind string, fn func(ctx context.Context, tx Tx, job queue.Job[T]) error, opts ...queue.HandlerOption,
) error {
	if fn == nil {
		return queue.Handle[T](q, kind, nil)
	}
	with, ours := of.Driver(q).(driver.Beginner[Tx])
	if !ours {
		return &dblock.InvalidError{Field: "queue", Reason: fmt.Sprintf("it has no transactions of the type %T: call HandleTx of the package that made it", *new(Tx))}
	}
	begin := func(ctx context.Context, m member.ID, first *driver.Position) (any, driver.HandlerTx, driver.Beginning, error) {
		return with.Begin(ctx, m, first)
	}
	handle := func(ctx context.Context, job queue.Job[T]) error { return fn(ctx, of.TxOf(ctx).(Tx), job) }
	return queue.Handle(q, kind, handle, append(slices.Clone(opts), of.InTx(begin))...)
}
