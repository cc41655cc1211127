package pglock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// sessionDriver is the Postgres side of the session locks.
type sessionDriver struct {
	host      *pgxpool.Pool
	namespace string
	raw       bool
	schema    string
	label     string
	idle      time.Duration

	maxLocks int // locks a connection; set by the first one
	q        pgdb.Queries
}

var _ session.Driver = (*sessionDriver)(nil)

// ID is the eight bytes of a Key.
func (e *sessionDriver) ID(key string) (session.ID, error) {
	k := KeyOf(e.namespace, key)
	if e.raw {
		n, err := strconv.ParseInt(key, 10, 64)
		if err != nil {
			return "", &dblock.InvalidError{Field: "key", Reason: fmt.Sprintf("%q is not a number of 64 bits, which it must be with RawKeys", key)}
		}
		k = Key(n)
	}
	return idOf(int64(k)), nil
}

func keyOf(id session.ID) int64 { return int64(binary.BigEndian.Uint64([]byte(id))) }

func idOf(key int64) session.ID {
	var id [8]byte
	binary.BigEndian.PutUint64(id[:], uint64(key))
	return session.ID(id[:])
}

// MaxLocks leaves four fifths of the server's lock table, as it is said to be, to others; it holds
// about twice as many.
func (e *sessionDriver) MaxLocks() int { return e.maxLocks }

// Classify returns the class of an error.
func (e *sessionDriver) Classify(err error) sqlerr.Class { return postgres.Classify(err) }

// channel of the session locks that were released while others waited.
const sessionChannel = "dblock_session"

// Open connects as the host's pool does.
func (e *sessionDriver) Open(ctx context.Context, received func(session.ID)) (session.Conn, error) {
	conn, err := postgres.Connect(ctx, e.host, func(cfg *pgx.ConnConfig) {
		cfg.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
			if key, err := strconv.ParseInt(n.Payload, 10, 64); err == nil && n.Channel == sessionChannel {
				received(idOf(key))
			}
		}
		// A deadline in the past interrupts a read, and leaves the connection as it was.
		cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()}
		}
		if e.label != "" {
			cfg.RuntimeParams["application_name"] = e.label
		}
	})
	if err != nil {
		return nil, err
	}
	c := &sessionConn{conn: conn, q: e.q, tracer: conn.Config().Tracer}
	if err := e.prepare(ctx, c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// prepare makes sure that session locks exclude where the connection leads, and that the server
// ends it when it is silent.
func (e *sessionDriver) prepare(ctx context.Context, c *sessionConn) error {
	server, err := postgres.Probe(ctx, c.conn)
	if err != nil {
		return err
	}
	if err := server.SessionLocks(); err != nil {
		return err
	}
	if e.maxLocks == 0 {
		e.maxLocks = max(1, server.LockCapacity/5)
	}
	c.backend = server.Backend
	seconds := strconv.FormatInt(max(1, int64(e.idle/(3*time.Second))), 10)
	ms := strconv.FormatInt(e.idle.Milliseconds(), 10)
	settings := [][2]string{
		{"idle_session_timeout", ms},
		{"statement_timeout", "0"}, {"lock_timeout", "0"},
		{"tcp_keepalives_idle", seconds}, {"tcp_keepalives_interval", seconds}, {"tcp_keepalives_count", "3"}, {"tcp_user_timeout", ms},
		{"default_transaction_isolation", "read committed"}, {"plan_cache_mode", "force_generic_plan"}, {"jit", "off"},
	}
	if _, ok := server.Settings["transaction_timeout"]; ok { // since Postgres 17
		settings = append(settings, [2]string{"transaction_timeout", "0"})
	}
	set := "SELECT "
	for i, s := range settings {
		if i > 0 {
			set += ", "
		}
		set += "pg_catalog.set_config('" + s[0] + "', '" + s[1] + "', false)"
	}
	if _, err := c.conn.PgConn().Exec(ctx, set+"; LISTEN "+sessionChannel).ReadAll(); err != nil {
		return fmt.Errorf("LISTEN (it is slow while the server's queue is full: see pg_notification_queue_usage): %w", err)
	}
	// So that the server sees that a client has gone which waits for a lock. Not every system has
	// what that takes.
	_, err = c.conn.PgConn().Exec(ctx, "SET client_connection_check_interval = 500").ReadAll()
	var refused *pgconn.PgError
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	return nil
}

// Note keeps keys for people.
func (e *sessionDriver) Note(ctx context.Context, keys map[session.ID]string) error {
	if e.raw {
		return nil // they are what the server shows
	}
	ids := make([]int64, 0, len(keys))
	names := make([]string, 0, len(keys))
	for id, name := range keys {
		ids, names = append(ids, keyOf(id)), append(names, name)
	}
	home, err := postgres.FindSchema(ctx, e.host, e.schema)
	if err != nil {
		return err
	}
	on := postgres.NewSchema(home).On(e.host)
	if err := e.q.NoteSessionKeys(ctx, on, e.namespace, ids, names); err != nil {
		return err
	}
	return e.q.DeleteSessionKeys(ctx, on)
}

// sessionConn is a connection that has session locks.
type sessionConn struct {
	conn    *pgx.Conn
	backend int32
	q       pgdb.Queries
	tracer  pgx.QueryTracer // the host's; nil: it has none

	args  []byte // of the last statement, and its answer: kept to reuse their memory
	reply []byte
}

// Has looks the locks up.
func (c *sessionConn) Has(ctx context.Context, steps []session.Step) ([]bool, error) {
	rows, err := c.q.HeldSessionLocks(ctx, c.conn)
	if err != nil {
		return nil, err
	}
	has := make([]bool, len(steps))
	for i, s := range steps {
		has[i] = slices.Contains(rows, lockRow(s))
	}
	return has, nil
}

// waitBits are what the statements change of a lock's number for the second lock that its waiters
// share.
const waitBits = 7255594130963576273

// lockRow is the row of the lock that a step is about.
func lockRow(s session.Step) pgdb.HeldSessionLocksRow {
	row := pgdb.HeldSessionLocksRow{LockID: keyOf(s.ID)}
	switch s.Op {
	case session.TakeShared, session.FreeShared, session.DropShared:
		row.Shared = true
	case session.Show, session.Hide:
		row.LockID, row.Halves, row.Shared = row.LockID^waitBits, true, true
	case session.Intend, session.Forgo:
		row.LockID, row.Halves = waiterKey(row.LockID), true
	}
	return row
}

// Ping makes sure that it is the same server process still.
func (c *sessionConn) Ping(ctx context.Context) error {
	backend, err := c.q.SessionBackend(ctx, c.conn)
	if err == nil && backend != c.backend {
		c.Close()
		err = fmt.Errorf("%w: the server's process was %d and is %d: a pooler has come between", dblock.ErrUnsupported, c.backend, backend)
	}
	return err
}

// Park reads what the server sends unasked.
func (c *sessionConn) Park(ctx context.Context) error {
	for {
		err := c.conn.PgConn().WaitForNotification(ctx)
		if err != nil && ctx.Err() != nil && !c.conn.IsClosed() {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Wait waits in the server's own line.
func (c *sessionConn) Wait(ctx context.Context, id session.ID, shared bool) error {
	wait := "SELECT pg_catalog.pg_advisory_lock($1::bigint)"
	if shared {
		wait = "SELECT pg_catalog.pg_advisory_lock_shared($1::bigint)"
	}
	_, err := c.conn.Exec(ctx, wait, keyOf(id))
	return err
}

// Closed reports whether the connection has ended.
func (c *sessionConn) Closed() bool { return c.conn.IsClosed() }

// Close ends it.
func (c *sessionConn) Close() { postgres.CloseConn(c.conn) }
