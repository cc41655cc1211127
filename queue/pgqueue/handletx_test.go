package pgqueue_test

import (
	"context"

	"github.com/jackc/pgx/v5"

	queuesuite "github.com/dblock-go/dblock/internal/conformance/queue"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

func handleTx(q *queue.Queue, kind string, fn queuesuite.TxHandler, opts ...queue.HandlerOption) error {
	if fn == nil {
		return pgqueue.HandleTx[int](q, kind, nil, opts...)
	}
	return pgqueue.HandleTx(q, kind, func(ctx context.Context, tx pgx.Tx, job queue.Job[int]) error {
		return fn(ctx, handlerTx{q, tx}, job)
	}, opts...)
}

// handlerTx is a handler's transaction, as the suite uses it.
type handlerTx struct {
	q *queue.Queue
	pgx.Tx
}

func (t handlerTx) Do(ctx context.Context, statement string) error {
	_, err := t.Exec(ctx, statement)
	return err
}

func (t handlerTx) Enqueue(ctx context.Context, tasks ...queue.Task) ([]queue.ID, error) {
	return pgqueue.EnqueueTx(ctx, t.q, t.Tx, tasks...)
}
