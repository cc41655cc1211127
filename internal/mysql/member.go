package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Members keeps the rows of members, on a connection that only heartbeats use. So they come through
// when all others are busy. If the pool has no more than one connection, it is not kept.
type Members struct {
	db      *Database
	bounded bool          // waits for rows are, by the connection or the statement
	busy    chan struct{} // holds one while conn is used; a channel, as a wait for it can end
	conn    *sql.Conn     // nil: to be made
	broken  atomic.Int64
	q       mysqldb.Queries
}

// NewMembers returns the members of a database. If bounded, their statements wait for a row for
// LockWait at most.
func NewMembers(db *Database, bounded bool) *Members {
	return &Members{db: db, bounded: bounded, busy: make(chan struct{}, 1)}
}

// Register makes the member's row.
func (m *Members) Register(ctx context.Context, id member.ID, label string, ttl time.Duration) error {
	return m.do(ctx, func(on mysqldb.DBTX) error {
		return m.q.Register(ctx, on, id[:], []byte(label), ttl.Microseconds())
	})
}

// Heartbeat moves its end. The row always changes, so that the count reports whether it was there
// whatever clientFoundRows says.
func (m *Members) Heartbeat(ctx context.Context, id member.ID, ttl time.Duration) (beat int64, alive bool, err error) {
	err = m.do(ctx, func(on mysqldb.DBTX) error {
		result, err := m.q.Heartbeat(ctx, on, ttl.Microseconds(), id[:])
		if err != nil {
			return err
		}
		var rows int64
		rows, beat, err = CarriedID(result, 1)
		if err == nil && rows > 0 && beat == 0 {
			beat, err = m.q.ReadHeartbeat(ctx, on, id[:])
		}
		alive = err == nil && rows > 0
		return err
	})
	return beat, alive, err
}

// Deregister deletes the row.
func (m *Members) Deregister(ctx context.Context, id member.ID) error {
	return m.do(ctx, func(on mysqldb.DBTX) error { return m.q.Deregister(ctx, on, id[:]) })
}

// Broken counts the connections that were dropped after an error. In a pool of one, database/sql
// may have replaced it unseen.
func (m *Members) Broken() int64 { return m.broken.Load() }

// do runs one autocommit statement. After any error the next one gets a connection of its own.
func (m *Members) do(ctx context.Context, statement func(mysqldb.DBTX) error) error {
	select {
	case m.busy <- struct{}{}:
		defer func() { <-m.busy }()
	case <-ctx.Done():
		return sqlerr.Unwritten(ctx.Err())
	}
	for n := 1; ; n++ {
		if err := m.connect(ctx); err != nil {
			return sqlerr.Unwritten(err)
		}
		var on mysqldb.DBTX = m.db.On(m.conn)
		if m.bounded {
			on = Briefly(on)
		}
		err := statement(on)
		if err != nil {
			m.broken.Add(1)
		}
		if err != nil || m.db.Stats().MaxOpenConnections == 1 {
			m.drop(ctx, err == nil)
		}
		if n == Attempts || !errors.Is(err, driver.ErrBadConn) {
			return Sent(err)
		}
	}
}

func (m *Members) connect(ctx context.Context) (err error) {
	switch {
	case m.conn != nil:
	case m.bounded:
		m.conn, err = m.db.Bind(ctx)
	default:
		m.conn, err = m.db.Conn(ctx)
	}
	return err
}

func (m *Members) drop(ctx context.Context, clean bool) {
	switch {
	case m.conn == nil:
		return
	case m.bounded:
		m.db.Return(ctx, m.conn, clean)
	default:
		if !clean {
			Discard(m.conn)
		}
		_ = m.conn.Close()
	}
	m.conn = nil
}

// Close gives the connection back; a later statement takes one again.
func (m *Members) Close() {
	m.busy <- struct{}{}
	defer func() { <-m.busy }()
	m.drop(context.Background(), true)
}
