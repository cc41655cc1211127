package queue

import (
	"context"
	"database/sql"
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// OpenOn makes a Queue on the database of dsn, whose connections the dialer makes. closePool ends
// these.
type OpenOn func(ctx context.Context, dsn string, dialer *faultconn.Dialer, o queue.Options) (
	q *queue.Queue, closePool func(), err error)

// Queue is a driver of package queue.
type Queue struct {
	Kind devdb.Kind

	// Open is OpenOn without a dialer.
	Open func(ctx context.Context, dsn string, o queue.Options) (q *queue.Queue, closePool func(), err error)

	OpenOn OpenOn

	EnqueueTx func(ctx context.Context, q *queue.Queue, tx *sql.Tx, tasks ...queue.Task) ([]queue.ID, error)

	HandleTx func(q *queue.Queue, kind string, fn TxHandler, opts ...queue.HandlerOption) error
}

// The tests of doc.go are methods of these types.
type (
	mainTests  struct{}
	faultTests struct{}
)

// Run runs the suite.
func (e Queue) Run(t *testing.T) { suite.RunEach(t, mainTests{}, e.env) }

// RunFaults runs the tests of faults and crowds.
func (e Queue) RunFaults(t *testing.T) { suite.RunEach(t, faultTests{}, e.env) }
