package pgqueue_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	queuesuite "github.com/dblock-go/dblock/internal/conformance/queue"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

var engine = queuesuite.Queue{Kind: devdb.Postgres, Open: open, OpenOn: openOn, EnqueueTx: enqueueTx, HandleTx: handleTx}

func open(ctx context.Context, dsn string, o queue.Options) (*queue.Queue, func(), error) {
	return openOn(ctx, dsn, nil, o)
}

func openOn(ctx context.Context, dsn string, dialer *faultconn.Dialer, o queue.Options) (*queue.Queue, func(), error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	if dialer != nil {
		cfg.ConnConfig.DialFunc = dialer.DialContext
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	q, err := pgqueue.New(ctx, pool, o)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return q, pool.Close, nil
}

func enqueueTx(ctx context.Context, q *queue.Queue, tx *sql.Tx, tasks ...queue.Task) ([]queue.ID, error) {
	return pgqueue.EnqueueTx(ctx, q, pglock.SQLTx(tx), tasks...)
}

func TestMain(m *testing.M) {
	engine.Main()
	testdb.Main(m, devdb.Postgres)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	engine.Run(t)
}

// TestFaults has no other tests beside it.
func TestFaults(t *testing.T) { engine.RunFaults(t) }
