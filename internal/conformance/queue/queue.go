package queue

import (
	"context"
	"database/sql"
	"reflect"
	"testing"

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
	mainTests   struct{}
	faultTests  struct{}
	heraldTests struct{}
)

// Run runs the suite.
func (e Queue) Run(t *testing.T) { e.run(t, mainTests{}) }

// RunFaults runs the tests of faults and crowds.
func (e Queue) RunFaults(t *testing.T) { e.run(t, faultTests{}) }

// RunHerald runs the tests of engines that notify other processes of jobs.
func (e Queue) RunHerald(t *testing.T) { e.run(t, heraldTests{}) }

// run runs the methods of a type, each with an env of its own.
func (e Queue) run(t *testing.T, tests any) {
	of := reflect.ValueOf(tests)
	for i := range of.NumMethod() {
		test := of.Method(i).Interface().(func(*testing.T, *env))
		t.Run(of.Type().Method(i).Name, func(t *testing.T) {
			t.Parallel()
			test(t, e.env(t))
		})
	}
}
