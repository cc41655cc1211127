package migratelock

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlconn"
)

// A waiter asks again after a random part of a growing bound: at first soon, because most
// migrations are short, and later seldom, because then a long one runs.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
)

// Postgres is an advisory lock on a session. It holds for one database: its names are not shared
// with others on the server. It needs a connection of its own for the time it is held: behind a
// pooler that gives each transaction another one it excludes no other process.
type Postgres struct {
	Schema  string        // whose tables are migrated: other schemas don't wait
	Timeout time.Duration // how long to wait; 0 stands for DefaultTimeout
	Close   Closer        // may be nil
}

// tryLock is NULL if the session holds the lock already: the server would grant it once more.
const tryLock = `SELECT CASE WHEN EXISTS (
    SELECT FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.pid = pg_catalog.pg_backend_pid()
        AND (l.classid::bigint << 32 | l.objid::bigint) = $1::bigint
) THEN NULL ELSE pg_catalog.pg_try_advisory_lock($1::bigint) END`

// SessionLock waits until conn holds the lock, ctx ends, or the timeout has passed; the last is
// dblock.ErrBusy. It polls: a session that waits inside the server holds a snapshot, and the
// holder's CREATE INDEX CONCURRENTLY would wait for that, for ever.
func (p *Postgres) SessionLock(ctx context.Context, conn *sql.Conn) error {
	timeout := cmp.Or(p.Timeout, DefaultTimeout)
	deadline := time.Now().Add(timeout)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		var got sql.NullBool
		err := conn.QueryRowContext(ctx, tryLock, p.key()).Scan(&got)
		if err == nil && !got.Valid {
			err = errShared
		}
		if err != nil {
			sqlconn.Discard(conn, p.Close)
			return errTaking(ctx, err)
		}
		if got.Bool {
			return nil
		}
		left := time.Until(deadline)
		if left <= 0 {
			return errTimeout(timeout)
		}
		if err := pace.Sleep(ctx, min(rand.N(pause), left)); err != nil {
			return fmt.Errorf("dblock: waiting for the migration lock: %w", err)
		}
	}
}

// Refuse closes conn. err says why a lock of conn would not exclude others.
func (p *Postgres) Refuse(ctx context.Context, conn *sql.Conn, err error) error {
	sqlconn.Discard(conn, p.Close)
	return errTaking(ctx, err)
}

// SessionUnlock releases the lock. It doesn't look at whether ctx has ended. An error says that
// this could not be confirmed, and that conn was closed for it.
func (p *Postgres) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	return unlock(ctx, conn, p.Close, func(ctx context.Context) (held bool, err error) {
		err = conn.QueryRowContext(ctx, "SELECT pg_catalog.pg_advisory_unlock($1::bigint)", p.key()).Scan(&held)
		return held, err
	})
}

func (p *Postgres) key() int64 {
	sum := name("postgres", p.Schema)
	return int64(binary.BigEndian.Uint64(sum[:8])) // all 64 bits are the key; the sign says nothing
}
