package mysqllock

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Join makes the member's row.
func (e *engine) Join(ctx context.Context, id member.ID, label string, ttl time.Duration) error {
	return e.beating(ctx, func(on mysqldb.DBTX) error {
		return e.q.Join(ctx, on, id[:], []byte(label), ttl.Microseconds())
	})
}

// Beat moves its end. The row always changes, so that the count tells whether it was there whatever
// clientFoundRows says.
func (e *engine) Beat(ctx context.Context, id member.ID, ttl time.Duration) (beat int64, alive bool, err error) {
	err = e.beating(ctx, func(on mysqldb.DBTX) error {
		result, err := e.q.Beat(ctx, on, ttl.Microseconds(), id[:])
		if err != nil {
			return err
		}
		var rows int64
		rows, beat, err = mysql.CarriedID(result, 1)
		if err == nil && rows > 0 && beat == 0 {
			beat, err = e.q.SeeBeat(ctx, on, id[:])
		}
		alive = err == nil && rows > 0
		return err
	})
	return beat, alive, err
}

// Leave deletes the row.
func (e *engine) Leave(ctx context.Context, id member.ID) error {
	return e.beating(ctx, func(on mysqldb.DBTX) error { return e.q.Leave(ctx, on, id[:]) })
}

// Broken counts the connections of heartbeats.
func (e *engine) Broken() int64 { return e.heart.broken.Load() }

func (e *engine) beating(ctx context.Context, statement func(mysqldb.DBTX) error) error {
	return e.heart.do(ctx, e.on, statement)
}

// heart is a connection that only heartbeats use, so that they come through when all others are busy.
// Where the pool has no more than one, it is not kept.
type heart struct {
	pool *sql.DB
	turn chan struct{} // holds one: whose turn it is to use conn; a channel, as a wait for it can end
	conn *sql.Conn     // nil: to be made

	broken atomic.Int64 // how many were dropped after an error
}

func newHeart(pool *sql.DB) *heart { return &heart{pool: pool, turn: make(chan struct{}, 1)} }

// do runs one autocommit statement. After any error the next one gets a connection of its own.
func (h *heart) do(ctx context.Context, on func(mysql.Conn) mysqldb.DBTX, statement func(mysqldb.DBTX) error) error {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return sqlerr.Unwritten(ctx.Err())
	}
	for n := 1; ; n++ {
		if err := h.connect(ctx); err != nil {
			return sqlerr.Unwritten(err)
		}
		err := statement(on(h.conn))
		if err != nil {
			h.broken.Add(1)
			mysql.Discard(h.conn)
		}
		if err != nil || h.pool.Stats().MaxOpenConnections == 1 {
			h.drop()
		}
		if n == attempts || !unsent(err) {
			return sent(err)
		}
	}
}

func (h *heart) connect(ctx context.Context) (err error) {
	if h.conn == nil {
		h.conn, err = h.pool.Conn(ctx)
	}
	return err
}

func (h *heart) drop() {
	if h.conn != nil {
		_ = h.conn.Close()
		h.conn = nil
	}
}

// close gives the connection back; a later statement takes one again.
func (h *heart) close() {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	h.drop()
}
