package mysqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/mysql"
)

// engine is the leases of one database, which schema names; empty: that of the connections.
type engine struct {
	pool   *sql.DB
	heart  *heart
	schema string

	mariaDB  bool // it can do what MySQL can't
	lockWait time.Duration
	longest  int           // bytes of a statement; 0: no bound
	watch    time.Duration // between two looks at what is waited for; 0: none

	notDurable string // the setting for which commits don't survive a crash; empty: they do

	q mysqldb.Queries
}

var _ lease.Engine = (*engine)(nil)

func newEngine(db *sql.DB, schemaName string) *engine {
	return &engine{pool: db, heart: newHeart(db), schema: schemaName}
}

// Lingers is for how long a statement may wait for a gap, once the client has given up. (MariaDB's don't wait.)
func (e *engine) Lingers() time.Duration { return e.lockWait }

// LongestStatement is the server's max_allowed_packet, without the bound that each statement gets. The server closes a connection on
// which more than that arrives.
func (e *engine) LongestStatement() int { return max(0, e.longest-len(mysql.TableBound)) }

// close gives the heart's connection back to the pool.
func (e *engine) close() { e.heart.close() }

// check makes sure that server and tables are what the statements here were written for.
func (e *engine) check(ctx context.Context) error {
	var err error
	if e.schema, err = mysql.Home(ctx, e.pool, e.schema); err != nil {
		return err
	}
	server, err := mysql.CheckSchema(ctx, e.pool, e.schema)
	if err != nil {
		return err
	}
	if e.notDurable, err = e.undurable(ctx); err != nil {
		return mysql.Unavailable(err)
	}
	limits, err := e.q.StatementLimits(ctx, e.on(e.pool))
	if err != nil {
		return mysql.Unavailable(err)
	}
	e.longest = int(limits.MaxPacket) - mysql.PacketOverhead
	if e.mariaDB = server == "MariaDB"; !e.mariaDB {
		e.lockWait = time.Duration(limits.LockWaitSeconds) * time.Second
	}
	return nil
}

// on returns what the generated queries run on: their tables are in the database that the host chose.
func (e *engine) on(conn mysql.Conn) mysqldb.DBTX {
	on := mysql.On(conn, e.schema)
	on.Longest, on.BoundTables = e.longest, !e.mariaDB
	return on
}
