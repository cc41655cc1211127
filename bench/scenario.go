package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
)

// Scenario is one thing to measure.
type Scenario struct {
	Name  string // a family and what is measured of it: "seckill/merge"
	About string // one line for --list

	// Engines are the servers that it runs on. Default: any.
	Engines []devdb.Kind

	// Conns are numbers of connections of which the best is to be found, where --conns does not
	// give one. Default: the smaller of the number of clients and 64.
	Conns []int

	// MaxClients bounds the clients; default: none.
	MaxClients int

	// Open prepares it, on a database of its own.
	Open func(ctx context.Context, env *Env) (Workload, error)
}

// runsOn reports whether the scenario has an implementation for that kind of server.
func (s Scenario) runsOn(kind devdb.Kind) bool {
	return len(s.Engines) == 0 || slices.Contains(s.Engines, kind)
}

func (s Scenario) clients(wanted int) int {
	if s.MaxClients > 0 {
		return min(wanted, s.MaxClients)
	}
	return wanted
}

// Workload is a scenario that has been opened.
type Workload interface {
	// Round prepares round n; 0 is the warm-up. No two rounds of a Workload overlap.
	Round(ctx context.Context, n int) (Round, error)
	Close() error
}

// Described is a Locker or a Seller that runs on another server than the rest, or on one more.
type Described interface {
	Engine() string // for example "redis"
	Server() string // its version and, in brackets, how durable it is set to be
}

// Round is one round of a Workload. It has either Client or Run.
type Round struct {
	// Client returns what one client does again and again, on a goroutine of its own.
	Client func(id int) (Op, error)

	// Run is for what makes its own load.
	Run func(ctx context.Context, d time.Duration) (Sample, error)

	// Here is true if Run's load is of this process: statements and allocations are part of what it
	// costs.
	Here bool

	// Check is called when the last client has ended, with the units that were reported to the
	// clients. An error ends the run: a result that is wrong is not a result. Default: nothing is
	// checked.
	Check func(ctx context.Context, ok int64) error
}

// matches is the Check of a round whose units are counted elsewhere, too, from a number on.
func matches(units, place string, from int64, counted func(context.Context) (int64, error)) func(context.Context, int64) error {
	return func(ctx context.Context, ok int64) error {
		n, err := counted(ctx)
		if err == nil && n-from != ok {
			err = fmt.Errorf("%d %s were reported to the clients, but %s %d", ok, units, place, n-from)
		}
		return err
	}
}

// Op is one operation. It returns how many units of work it did, nearly always 1. An error that is
// a *Failure, or one that means the same in dblock's words, is counted by its kind and the client
// goes on; every other error ends the run.
type Op func(ctx context.Context) (units int, err error)

// Failure is an operation that failed in a way that belongs to what is measured.
type Failure struct {
	Kind string // in words with underscores: "busy"
	Err  error
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %v", f.Kind, f.Err) }

func (f *Failure) Unwrap() error { return f.Err }
