package queue

import (
	"context"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

func init() { driver.Queue = functions{} }

// functions are those that drivers call through package link.
type functions struct{}

// NewQueue checks the options before it calls open.
func (functions) NewQueue(o Options, open func() (driver.Driver, error)) (*Queue, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	e, err := open()
	if err != nil {
		return nil, err
	}
	q, err := newQueue(e, o)
	if err != nil {
		e.Close()
	}
	return q, err
}

// Driver is that of NewQueue.
func (functions) Driver(q *Queue) driver.Driver { return q.driver }

// EnqueueIn sends what EnqueueMany would share with other calls in a statement of its own.
func (functions) EnqueueIn(ctx context.Context, q *Queue, tx *driver.CallerTx, tasks []Task) ([]ID, error) {
	if q == nil {
		return nil, &dblock.InvalidError{Field: "q", Reason: "it is nil"}
	}
	if err := q.begin(); err != nil {
		return nil, err
	}
	defer q.calls.Done()
	return q.enqueuer.enqueueIn(ctx, tx, tasks)
}

// InTx has a handler work in the transaction with which its job ends, which TxOf returns.
func (functions) InTx(begin driver.Begin) HandlerOption {
	return func(h *handler) { h.begin = begin }
}

// txKey is for the transaction of a handler.
type txKey struct{}

// TxOf is the transaction of the handler that is given ctx.
func (functions) TxOf(ctx context.Context) any { return ctx.Value(txKey{}) }
