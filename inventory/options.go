package inventory

import (
	"cmp"
	"fmt"
	"time"
)

// Strategy is how a Store sells.
type Strategy int

const (
	// Merge: orders that queue while a statement is in flight share the next one. A lone order
	// runs as under Direct.
	Merge Strategy = iota
	// Direct: one conditional UPDATE an order.
	Direct
)

// Strategies lists all of them, the default first.
func Strategies() []Strategy { return []Strategy{Merge, Direct} }

func (s Strategy) String() string {
	switch s {
	case Merge:
		return "merge"
	case Direct:
		return "direct"
	default:
		return fmt.Sprintf("Strategy(%d)", int(s))
	}
}

// ParseStrategy returns the strategy of that name.
func ParseStrategy(name string) (Strategy, error) {
	for _, s := range Strategies() {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, &InvalidError{"strategy", fmt.Sprintf("%q; there are %v", name, Strategies())}
}

// Options of a Store. The zero value is good for use.
type Options struct {
	// Strategy: default Merge.
	Strategy Strategy

	// Schema is where the tables are: a Postgres schema, or a MySQL database. Default: where the
	// connection looks first (search_path, or the database it is connected to).
	Schema string

	// Timeout bounds the work on one order or one merged batch, retries included. A caller can wait
	// twice as long: behind the batch before its own, or, under Direct, while an order whose
	// connection was lost is looked up. Default 10 s, at least 10 ms.
	Timeout time.Duration

	// MaxQueue bounds how many orders may wait in this process; more are refused with
	// dblock.ErrOverloaded. Default 65,536.
	MaxQueue int

	// MaxBatch bounds how many orders share a statement. Default 1,024, at most 8,192.
	MaxBatch int

	// MaxInFlight bounds how many statements, and so connections, are in use at once. Default 4
	// under Merge, which gains nothing by more; 64 under Direct.
	MaxInFlight int

	// RecordRefusals also records orders that found too little stock, so that the answer to a key
	// never changes, restock or not. It costs a row a refusal.
	RecordRefusals bool
}

const (
	minTimeout = 10 * time.Millisecond
	maxBatch   = 8192

	mergedInFlight = 4 // merged statements at once
)

// withDefaults fills in the defaults and refuses what makes no sense.
func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Strategy != Merge && o.Strategy != Direct:
		return o, &InvalidError{"Options.Strategy", fmt.Sprintf("%v; there are %v", o.Strategy, Strategies())}
	case o.Timeout != 0 && o.Timeout < minTimeout:
		return o, &InvalidError{"Options.Timeout", fmt.Sprintf("%v is shorter than %v", o.Timeout, minTimeout)}
	case o.MaxQueue < 0:
		return o, &InvalidError{"Options.MaxQueue", fmt.Sprintf("%d is negative", o.MaxQueue)}
	case o.MaxBatch < 0 || o.MaxBatch > maxBatch:
		return o, &InvalidError{"Options.MaxBatch", fmt.Sprintf("%d is not within 0 to %d", o.MaxBatch, maxBatch)}
	case o.MaxInFlight < 0:
		return o, &InvalidError{"Options.MaxInFlight", fmt.Sprintf("%d is negative", o.MaxInFlight)}
	}
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.MaxQueue = cmp.Or(o.MaxQueue, 65536)
	o.MaxBatch = cmp.Or(o.MaxBatch, 1024)
	if o.Strategy == Direct {
		o.MaxInFlight = cmp.Or(o.MaxInFlight, 64)
	}
	o.MaxInFlight = cmp.Or(o.MaxInFlight, mergedInFlight)
	return o, nil
}
