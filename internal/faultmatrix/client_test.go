package faultmatrix

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/queue"
)

const (
	ttl       = time.Second // the shortest of leases, sessions and jobs
	longTTL   = time.Minute // of the operator, and of the lock that the control waits for
	poolConns = 8
)

// forcer is a lease's manager, with what an operator needs.
type forcer interface {
	dblock.Locker
	AcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error)
	TryAcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error)
	ForceRelease(ctx context.Context, key string, token int64) error
	Sweep(ctx context.Context) (int64, error)
	Held(ctx context.Context) ([]dblock.HeldLock, error)
	Holder(ctx context.Context, key string) (dblock.HeldLock, error)
}

// querier is a transaction of either driver.
type querier interface {
	exec(ctx context.Context, statement string) error
	one(ctx context.Context, query string) (int64, error)
}

// work is what a caller does in a transaction.
type work func(ctx context.Context, tx querier) error

// client is all that a process uses of dblock.
type client struct {
	pool     *sql.DB // the host's, which dblock uses, too
	leases   forcer
	fair     forcer // whose callers wait with tickets
	operator forcer
	sessions dblock.Locker // nil if the server's own locks are refused
	queue    *queue.Queue
	store    *inventory.Store

	guarded   func(ctx context.Context, lock *dblock.Lock, fn work) error
	handleTx  func(kind string, fn func(ctx context.Context, tx querier, args string) error) error
	closePool func()
	secondAgo string // in SQL
}

// config is what a process needs to start.
type config struct {
	Kind      devdb.Kind
	DSN       string
	Log       string
	N         int
	NoSession bool // behind a pooler
}

func openClient(ctx context.Context, c config) (*client, error) {
	if c.Kind == devdb.Postgres {
		return openPostgres(ctx, c)
	}
	return openMySQL(ctx, c)
}

var queueOptions = queue.Options{TTL: ttl, Timeout: time.Second}

// storeOptions are of the Store of a worker: every other one sells order by order.
func storeOptions(c config) inventory.Options {
	return inventory.Options{Timeout: 2 * time.Second, Direct: c.N%2 == 1}
}

// close gives everything back. Its errors are those of a database that is not there.
func (c *client) close(ctx context.Context) error {
	var errs []error
	if c.queue != nil {
		errs = append(errs, c.queue.Close(ctx))
	}
	if c.store != nil {
		errs = append(errs, c.store.Close(ctx))
	}
	for _, l := range []dblock.Locker{c.leases, c.fair, c.operator, c.sessions} {
		if l != nil {
			errs = append(errs, l.Close(ctx))
		}
	}
	c.closePool()
	return errors.Join(errs...)
}
