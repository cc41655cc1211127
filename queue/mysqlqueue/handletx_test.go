package mysqlqueue_test

import (
	"context"
	"database/sql"

	queuesuite "github.com/dblock-go/dblock/internal/conformance/queue"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
)

func handleTx(q *queue.Queue, kind string, fn queuesuite.TxHandler, opts ...queue.HandlerOption) error {
	if fn == nil {
		return mysqlqueue.HandleTx[int](q, kind, nil, opts...)
	}
	return mysqlqueue.HandleTx(q, kind, func(ctx context.Context, tx *sql.Tx, job queue.Job[int]) error {
		return fn(ctx, handlerTx{q, tx}, job)
	}, opts...)
}

// handlerTx is a handler's transaction, as the suite uses it.
type handlerTx struct {
	q  *queue.Queue
	tx *sql.Tx
}

func (t handlerTx) Do(ctx context.Context, statement string) error {
	_, err := t.tx.ExecContext(ctx, statement)
	return err
}

func (t handlerTx) Enqueue(ctx context.Context, tasks ...queue.Task) ([]queue.ID, error) {
	return mysqlqueue.EnqueueTx(ctx, t.q, t.tx, tasks...)
}

func (t handlerTx) Commit(context.Context) error { return t.tx.Commit() }

func (t handlerTx) Rollback(context.Context) error { return t.tx.Rollback() }
