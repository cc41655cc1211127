package inventory

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// Inventory is a driver of package inventory.
type Inventory struct {
	Kind devdb.Kind

	// Open makes a Store on the database of dsn, with a pool of its own of up to 64 connections,
	// which closePool ends.
	Open func(ctx context.Context, dsn string, o inventory.Options) (store *inventory.Store, closePool func(), err error)

	// OpenOn is Open with connections of the given dialer's.
	OpenOn func(
		ctx context.Context, dsn string, dialer *faultconn.Dialer, o inventory.Options,
	) (store *inventory.Store, closePool func(), err error)

	// OpenHooked is OpenOn with a hook.
	OpenHooked func(
		ctx context.Context, dsn string, dialer *faultconn.Dialer, o inventory.Options, hook Hook,
	) (store *inventory.Store, closePool func(), err error)

	// Callers begin transactions on their own connections, in every form for ReserveTx, by name.
	Callers map[string]Begin
}

// Begin begins a transaction on a connection of its own.
type Begin = func(ctx context.Context, dsn string, level sql.IsolationLevel) (*CallerTx, error)

// Hook is a hook of any driver, with a way to run a statement in its transaction.
type Hook = func(ctx context.Context, exec func(statement string) error, granted []inventory.Reservation) error

// CallerTx is a caller's transaction.
type CallerTx struct {
	Reserve    func(context.Context, *inventory.Store, inventory.Request) (inventory.Reservation, error)
	ReserveAll func(context.Context, *inventory.Store, inventory.Cart) (inventory.Reservation, error)
	Exec       func(ctx context.Context, statement string) error
	Commit     func(context.Context) error
	Rollback   func(context.Context) error
	Close      func() // ends the connection
}

// The tests of doc.go are methods of these types.
type (
	tests        struct{} // of both ways to sell
	patientTests struct{} // the same, with an Options.Timeout of a minute for each
	mergeTests   struct{} // of what does not depend on the way
	directTests  struct{}
	callerTests  struct{} // of callers' transactions
	ownTests     struct{} // of what opens Stores by itself
	cutTests     struct{}
	faultTests   struct{}
)

// ways are how a Store sells, by name.
var ways = map[string]inventory.Options{"merge": merged, "direct": direct}

var merged, direct = inventory.Options{}, inventory.Options{Direct: true}

// Run runs the suite.
func (e Inventory) Run(t *testing.T) {
	suite.Each(t, ways, func(t *testing.T, way inventory.Options) {
		suite.RunEach(t, tests{}, e.with(small(way)))
		suite.RunEach(t, patientTests{}, e.with(patient(way)))
	})
	suite.RunEach(t, mergeTests{}, e.with(patient(merged)))
	suite.RunEach(t, directTests{}, e.with(small(direct)))
	suite.Each(t, e.Callers, func(t *testing.T, begin Begin) {
		suite.RunEach(t, callerTests{}, func(t *testing.T) *callers {
			return &callers{e.env(t, patient(merged)), t, begin}
		})
	})
	suite.RunEach(t, ownTests{}, e.itself)
}

// RunFaults runs the tests of faults.
func (e Inventory) RunFaults(t *testing.T) {
	suite.Each(t, ways, func(t *testing.T, way inventory.Options) {
		suite.RunEach(t, cutTests{}, e.with(small(way)))
	})
	suite.RunEach(t, faultTests{}, e.itself)
}

// with makes the fixture of a test of one Store.
func (e Inventory) with(o inventory.Options) func(*testing.T) *env {
	return func(t *testing.T) *env { return e.env(t, o) }
}

func (e Inventory) itself(*testing.T) Inventory { return e }

// patient has orders wait for a busy machine: the tests of that bound set their own.
func patient(o inventory.Options) inventory.Options {
	o.Timeout = time.Minute
	return o
}

// small also bounds how many connections a Store opens, which take longer than most tests do.
func small(o inventory.Options) inventory.Options {
	if o.Direct {
		o.MaxInFlight = 12
	}
	return patient(o)
}

// size is how many orders are enough if n are for batches: single orders meet in a smaller crowd.
func (s *env) size(n int) int {
	if s.o.Direct {
		return n / 4
	}
	return n
}
