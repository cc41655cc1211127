package mysqlqueue

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Join makes the member's row.
func (d *database) Join(ctx context.Context, id member.ID, label string, ttl time.Duration) error {
	return d.heart.do(ctx, d.on, func(on mysqldb.DBTX) error {
		return d.q.Join(ctx, on, id[:], []byte(label), ttl.Microseconds())
	})
}

// Beat moves its end. The row always changes, so that the count tells whether it was there whatever clientFoundRows says.
func (d *database) Beat(ctx context.Context, id member.ID, ttl time.Duration) (beat int64, alive bool, err error) {
	err = d.heart.do(ctx, d.on, func(on mysqldb.DBTX) error {
		result, err := d.q.Beat(ctx, on, ttl.Microseconds(), id[:])
		if err != nil {
			return err
		}
		var rows int64
		rows, beat, err = mysql.CarriedID(result, 1)
		if err == nil && rows > 0 && beat == 0 {
			beat, err = d.q.SeeBeat(ctx, on, id[:])
		}
		alive = err == nil && rows > 0
		return err
	})
	return beat, alive, err
}

// Leave deletes the row.
func (d *database) Leave(ctx context.Context, id member.ID) error {
	return d.heart.do(ctx, d.on, func(on mysqldb.DBTX) error { return d.q.Leave(ctx, on, id[:]) })
}

// Broken counts the connections of heartbeats. In a pool of one, database/sql may have replaced it unseen.
func (d *database) Broken() int64 { return d.heart.broken.Load() }

// Evict is two statements, each in a snapshot of its own.
func (d *database) Evict(ctx context.Context, m member.ID) (gone bool, err error) {
	if err := d.written(ctx, func(on mysqldb.DBTX) error { return d.q.Evict(ctx, on, m[:]) }); err != nil {
		return false, err
	}
	stands, err := d.Stands(ctx, m)
	return !stands, err
}

// Stands reads the row.
func (d *database) Stands(ctx context.Context, m member.ID) (bool, error) {
	n, err := d.q.MemberStands(ctx, d.on(d.pool), m[:])
	return n > 0, err
}

// heart is a connection that only heartbeats use, so that they come through when all others are busy. Where the pool has no more than
// one, it is not kept.
type heart struct {
	pool mysql.Pool
	turn chan struct{} // holds one: whose turn it is to use conn; a channel, as a wait for it can end
	conn *sql.Conn     // nil: to be made

	broken atomic.Int64 // how many were dropped after an error
}

func newHeart(pool mysql.Pool) *heart { return &heart{pool: pool, turn: make(chan struct{}, 1)} }

// do runs one autocommit statement. After any error the next one gets a connection of its own.
func (h *heart) do(ctx context.Context, on func(mysql.Conn) mysqldb.DBTX, statement func(mysqldb.DBTX) error) error {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return sqlerr.Unwritten(ctx.Err())
	}
	for n := 1; ; n++ {
		if h.conn == nil {
			conn, err := h.pool.Bind(ctx)
			if err != nil {
				return sqlerr.Unwritten(err)
			}
			h.conn = conn
		}
		err := statement(on(h.conn))
		if err != nil {
			h.broken.Add(1)
		}
		if err != nil || h.pool.Stats().MaxOpenConnections == 1 {
			h.drop(ctx, err == nil)
		}
		if n == mysql.Attempts || !errors.Is(err, driver.ErrBadConn) {
			return err
		}
	}
}

func (h *heart) drop(ctx context.Context, clean bool) {
	if h.conn != nil {
		h.pool.Return(ctx, h.conn, clean)
		h.conn = nil
	}
}

// close gives the connection back; a later statement takes one again.
func (h *heart) close() {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	h.drop(context.Background(), true)
}
