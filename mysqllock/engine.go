package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/mysqltext"
	"github.com/dblock-go/dblock/internal/schema"
)

// engine is the leases of one database, which schema names; empty: that of the connections.
type engine struct {
	pool   *sql.DB
	heart  heart
	clock  serverClock
	schema string

	mariaDB bool // it can do what MySQL can't

	q mysqldb.Queries
}

var _ lease.Engine = (*engine)(nil)

func newEngine(db *sql.DB, schemaName string) *engine {
	e := &engine{pool: db, heart: newHeart(db), schema: schemaName}
	e.clock.ask = e.askClock
	return e
}

func (e *engine) askClock(ctx context.Context) (us int64, lockWait time.Duration, err error) {
	var r mysqldb.ServerClockRow
	err = e.read(ctx, func(on mysqldb.DBTX) (err error) {
		r, err = e.q.ServerClock(ctx, on)
		return err
	})
	return r.NowUs, time.Duration(r.LockWaitS) * time.Second, err
}

// Lingers is for how long a statement may wait for a gap, once the client has given up.
func (e *engine) Lingers() time.Duration { return e.clock.wait() }

// close gives the heart's connection back to the pool.
func (e *engine) close() { e.heart.close() }

// check makes sure that server and tables are what the statements here were written for.
func (e *engine) check(ctx context.Context) error {
	version, err := e.q.ServerVersion(ctx, e.on(e.pool))
	if err != nil {
		return e.unavailable(err)
	}
	name, err := schema.MySQLServer(version)
	if err != nil {
		return err
	}
	e.mariaDB = name == "MariaDB"
	have, err := e.q.SchemaVersion(ctx, e.on(e.pool))
	if err != nil && e.Fault(err) != lease.NoSchema {
		return e.unavailable(err)
	}
	return schema.Check(have)
}

// unavailable says that the server could not be asked.
func (e *engine) unavailable(err error) error {
	if e.Fault(noWrite(err)) != lease.Unreachable {
		return err
	}
	return fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
}

// on returns what the generated queries run on: their tables are in the database that the host chose.
func (e *engine) on(conn mysqltext.Conn) mysqldb.DBTX { return on(conn, e.schema) }

func on(conn mysqltext.Conn, schemaName string) mysqldb.DBTX {
	return mysqltext.Inline{Conn: conn, Rewrite: func(query string) string {
		return schema.Qualify(query, schemaName, schema.QuoteMySQL)
	}}
}

// serverClock is what is known of the server's clock, so that a statement can be told when it comes too late.
// Only that hangs on it, so it need not be exact.
type serverClock struct {
	ask func(context.Context) (us int64, lockWait time.Duration, err error)

	mu       sync.Mutex
	us       int64     // what the server said
	at       time.Time // when it was asked; zero: it is to be asked
	lockWait time.Duration
}

// asked is after how long the server is asked again, as its clock may have been set.
const asked = time.Minute

// latest is the moment of the server's clock, in microseconds since 1970, at which the context's deadline comes.
func (c *serverClock) latest(ctx context.Context) (us int64, err error) {
	c.mu.Lock()
	us, at := c.us, c.at
	c.mu.Unlock()
	if now := time.Now(); now.Sub(at) > asked {
		at = now
		var lockWait time.Duration
		if us, lockWait, err = c.ask(ctx); err != nil {
			return 0, err
		}
		c.mu.Lock()
		c.us, c.at, c.lockWait = us, at, lockWait
		c.mu.Unlock()
	}
	left := longestBound
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	return us + (time.Since(at) + left).Microseconds(), nil
}

// longestBound is how long a statement may be under way whose context has no end.
const longestBound = 10 * time.Second

// doubt has the server asked again before the next use.
func (c *serverClock) doubt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}

// wait is how long a statement may wait for a lock at the server.
func (c *serverClock) wait() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lockWait
}
