package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
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
