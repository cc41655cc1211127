package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/mysqltext"
	"github.com/dblock-go/dblock/internal/schema"
)

// engine is the leases of one database, which schema names; empty: that of the connections.
type engine struct {
	pool   *sql.DB
	heart  heart
	schema string

	mariaDB  bool // it can do what MySQL can't
	lockWait time.Duration

	q mysqldb.Queries
}

var _ lease.Engine = (*engine)(nil)

func newEngine(db *sql.DB, schemaName string) *engine {
	return &engine{pool: db, heart: newHeart(db), schema: schemaName}
}

// Lingers is for how long a statement may wait for a gap, once the client has given up. (MariaDB's don't wait.)
func (e *engine) Lingers() time.Duration { return e.lockWait }

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
	if e.mariaDB = name == "MariaDB"; !e.mariaDB {
		seconds, err := e.q.LockWaitTimeout(ctx, e.on(e.pool))
		if err != nil {
			return e.unavailable(err)
		}
		e.lockWait = time.Duration(seconds) * time.Second
	}
	have, err := e.q.SchemaVersion(ctx, e.on(e.pool))
	if err != nil && e.Fault(err) != fault.NoSchema {
		return e.unavailable(err)
	}
	return schema.Check(have)
}

// unavailable says that the server could not be asked.
func (e *engine) unavailable(err error) error {
	if e.Fault(fault.NoWrite(err)) != fault.Unreachable {
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
