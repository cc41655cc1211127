package mysqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// sessionDriver is the MySQL and MariaDB side of the session locks.
type sessionDriver struct {
	pool      *sql.DB
	namespace string
	raw       bool
	schema    string
	idle      time.Duration
	conns     int // that session locks may take out of the pool

	database string // whose keys they are; these are set by the first connection
	limit    string // the variable that bounds the time of a statement
	folds    bool   // the server ignores the case of names: MySQL does, and MariaDB compares their bytes
	q        mysqldb.Queries
}

var _ session.Driver = (*sessionDriver)(nil)

// sessionConns returns how many connections session locks may take out of the pool, so that one
// stays with the host. 0: the default. ServerQueue takes two at least: one for the locks that are
// free, one for a call that waits.
func sessionConns(pool *sql.DB, o SessionOptions) (int, error) {
	limit, least := pool.Stats().MaxOpenConnections, 1
	if o.ServerQueue {
		least = 2
	}
	switch {
	case limit == 0:
		return o.MaxConns, nil
	case limit <= least:
		return 0, &dblock.InvalidError{Field: "pool", Reason: fmt.Sprintf(
			"it may open %d connections: session locks take %d at least, and one stays with the host: allow %d", limit, least, least+1)}
	case o.MaxConns >= limit:
		return 0, &dblock.InvalidError{Field: "SessionOptions.MaxConns", Reason: fmt.Sprintf(
			"%d leaves no connection of a pool of %d to the host: allow %d in the pool", o.MaxConns, limit, o.MaxConns+1)}
	case o.MaxConns == 0:
		return min(session.DefaultConns, limit-1), nil
	}
	return o.MaxConns, nil
}

// rawName is a name that means the same on MySQL and MariaDB, and in a statement.
var rawName = regexp.MustCompile(`^[ !#-&(-\[\]-_a-~]{1,64}$`)

// ID is the name that GET_LOCK is given.
func (e *sessionDriver) ID(key string) (session.ID, error) {
	if !e.raw {
		return session.ID(NameOf(e.database, e.namespace, key)), nil
	}
	if !rawName.MatchString(key) {
		return "", &dblock.InvalidError{
			Field: "key", Reason: fmt.Sprintf("%q is not of 1 to 64 printable characters of ASCII without quotes and backslashes, which it must be with RawNames", key),
		}
	}
	if !e.folds {
		return session.ID(key), nil
	}
	return session.ID(strings.ToLower(key)), nil
}

// MaxLocks is a bound of reason: the server has none, but for its memory.
func (e *sessionDriver) MaxLocks() int { return 10_000 }

// Classify returns the class of an error. A deadlock of named locks rolls nothing back: the call
// may be sent again.
func (e *sessionDriver) Classify(err error) sqlerr.Class {
	if mysql.IsDeadlock(err) {
		return sqlerr.Retryable
	}
	return mysql.Classify(err)
}

// Open takes a connection out of the pool, for good.
func (e *sessionDriver) Open(ctx context.Context, _ func(session.ID)) (session.Conn, error) {
	for n := 1; ; n++ {
		conn, err := e.pool.Conn(ctx)
		if err != nil {
			return nil, sqlerr.Unwritten(err)
		}
		c := &sessionConn{conn: conn, pool: e.pool, prepared: make(map[batch]*sql.Stmt)}
		if err = e.prepare(ctx, c); err == nil {
			return c, nil
		}
		c.Close()
		if n == mysql.Attempts || !errors.Is(err, driver.ErrBadConn) { // the pool may have had dead ones
			return nil, err
		}
	}
}

// prepare makes sure that session locks exclude where the connection leads, and that the server
// ends it when it is silent.
func (e *sessionDriver) prepare(ctx context.Context, c *sessionConn) error {
	if _, err := c.conn.ExecContext(ctx, "SET SESSION autocommit = 1, SESSION sql_select_limit = "+mysql.AllRows); err != nil {
		return err
	}
	server, err := mysql.Inspect(ctx, c.conn)
	if err != nil {
		return err
	}
	if err := server.SessionLocks(); err != nil {
		return err
	}
	if e.limit == "" {
		e.database = e.schema
		if e.database == "" {
			e.database = server.Database
		}
		e.limit, e.folds = "max_execution_time", !server.MariaDB
		if server.MariaDB {
			e.limit = "max_statement_time"
		}
	}
	c.id = server.ConnID
	_, err = c.conn.ExecContext(ctx, fmt.Sprintf("SET SESSION wait_timeout = %d, SESSION %s = 0", e.idle/time.Second, e.limit))
	return err
}

// Note keeps keys for people.
func (e *sessionDriver) Note(ctx context.Context, keys map[session.ID]string) error {
	if e.raw {
		return nil // they are what the server shows
	}
	var args []any
	for id, key := range keys {
		args = append(args, []byte(id), []byte(e.namespace), []byte(key))
	}
	on := mysql.On(e.pool, e.database)
	if _, err := on.ExecContext(ctx, mysqldb.NoteSessionKeys, args...); err != nil {
		return err
	}
	return e.q.DeleteSessionKeys(ctx, on)
}

// sessionConn is a connection that has session locks.
type sessionConn struct {
	conn   *sql.Conn
	pool   *sql.DB
	id     int64
	closed atomic.Bool

	prepared map[batch]*sql.Stmt
	plain    bool // the server prepares nothing more
}

// Ping makes sure that it is the same connection still.
func (c *sessionConn) Ping(ctx context.Context) error {
	var id int64
	if err := c.conn.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		return c.failed(err)
	}
	if id != c.id {
		c.Close()
		return fmt.Errorf("%w: the connection was %d and is %d: a proxy has come between", dblock.ErrUnsupported, c.id, id)
	}
	return nil
}

// Park is not to be had.
func (c *sessionConn) Park(context.Context) error {
	return fmt.Errorf("%w: MySQL and MariaDB say nothing unasked", dblock.ErrUnsupported)
}

// waitAtServer is a year, in seconds: what stands for no end on one of the two is refused by the
// other.
const waitAtServer = 365 * 24 * 60 * 60

// Wait waits in the server's own queue. The server notices within a second that a waiting client
// has gone, and at once after a KILL.
func (c *sessionConn) Wait(ctx context.Context, id session.ID, _ bool) error {
	var got sql.NullInt64
	query := "SELECT GET_LOCK(" + quote(string(id)) + ", " + strconv.Itoa(waitAtServer) + ")"
	err := c.conn.QueryRowContext(ctx, query).Scan(&got)
	var server *mysqldriver.MySQLError
	if err != nil && !errors.As(err, &server) { // readTimeout of the DSN, or the end of ctx: the server waits still
		c.endWait(ctx, query)
	}
	if err == nil && got.Int64 != 1 {
		err = errNoGrant
	}
	return err
}

// endWait ends the session if it still waits. After a restart, or a failover, the server may have
// given its number to another one, which runs something else.
func (c *sessionConn) endWait(ctx context.Context, query string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	processes, _ := mysql.Processes(ctx, c.pool)
	for _, p := range processes {
		if p.ID == c.id && p.Statement == query {
			_, _ = c.pool.ExecContext(ctx, fmt.Sprintf("KILL %d", c.id))
		}
	}
}

var errNoGrant = errors.New("dblock: the server ended the wait for a session lock, and did not say why")

// Closed reports whether the connection has ended.
func (c *sessionConn) Closed() bool { return c.closed.Load() }

// Close ends it. The pool never gets it back.
func (c *sessionConn) Close() {
	if !c.closed.Swap(true) {
		mysql.Discard(c.conn)
		_ = c.conn.Close()
	}
}
