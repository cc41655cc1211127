package mysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
)

// Database is where dblock's tables are: a host's pool, the database that holds them, and what the
// server takes.
type Database struct {
	Pool

	Schema   string        // its name
	Longest  int           // bytes of a statement; 0: no bound
	LockWait time.Duration // a session's bound on waits for rows

	tables tables
}

// packetOverhead is how much shorter a statement is than the packet that carries it, with some to
// spare.
const packetOverhead = 64

// Open finds dblock's tables, in the database of that name or, without a name, in that of a
// connection, and checks that server and tables meet the requirements.
//
// Errors: dblock.ErrSchema, dblock.ErrServerTooOld, dblock.ErrUnsupported, dblock.ErrUnavailable.
func Open(ctx context.Context, db *sql.DB, name string) (*Database, error) {
	d := NewDatabase(db, name)
	home, err := Home(ctx, d.Pool, name)
	if err != nil {
		return nil, err
	}
	d.Schema, d.tables.schema = home, home
	server, err := CheckSchema(ctx, d.Pool, home)
	if err != nil {
		return nil, err
	}
	d.MariaDB = server == "MariaDB"
	limits, err := new(mysqldb.Queries).StatementLimits(ctx, d.On(d.Pool))
	if err != nil {
		return nil, Unavailable(err)
	}
	d.Longest = int(limits.MaxPacket) - packetOverhead
	d.LockWait = time.Duration(limits.LockWaitSeconds) * time.Second
	return d, nil
}

// NewDatabase returns a database of a MySQL server, of which nothing is checked.
func NewDatabase(db *sql.DB, name string) *Database {
	return &Database{Pool: NewPool(db), Schema: name, tables: tables{schema: name}}
}

// On returns what the generated queries run on. On MySQL their waits for tables are bounded.
func (d *Database) On(conn Conn) Inline {
	on := d.OnCaller(conn)
	on.boundTables = !d.MariaDB
	return on
}

// OnCaller is On in a transaction of the caller's, whose waits are the caller's to bound.
func (d *Database) OnCaller(conn Conn) Inline {
	return Inline{Conn: conn, tables: &d.tables, longest: d.Longest, mariaDB: d.MariaDB}
}

// LongestStatement is how many bytes of its own a statement may have; 0: no bound. The server
// closes a connection on which more than max_allowed_packet arrives.
func (d *Database) LongestStatement() int { return max(0, d.Longest-len(TableBound)) }

// On is Database.On for statements before anything is known of the server. Without a name the
// tables are in the database of the connection. For MariaDB the bound on waits for tables is a
// comment.
func On(conn Conn, name string) Inline {
	on := OnCaller(conn, name)
	on.boundTables = true
	return on
}

// OnCaller is On in a transaction of the caller's, whose waits are the caller's to bound.
func OnCaller(conn Conn, name string) Inline {
	return Inline{Conn: conn, tables: &tables{schema: name}}
}
