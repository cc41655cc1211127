package migratelock

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlconn"
)

// MySQL is a lock of GET_LOCK on MySQL or MariaDB, bound to a session.
//
// Such a lock is local to one server. Where several take writes (Galera, Group Replication in
// multi-primary mode), two processes that are connected to different ones don't exclude each other:
// run migrations against one of them.
type MySQL struct {
	Database string        // whose tables are migrated: other databases don't wait
	Timeout  time.Duration // how long to wait; 0 stands for DefaultTimeout
	Close    Closer        // may be nil
}

// errNull: the server answers NULL when it could not even try, such as when the session was killed
// or memory ran out.
var errNull = errors.New("the server answered NULL")

// tryGet is shared, 2, if the session holds the lock already: the server would grant it once more.
const (
	tryGet = "SELECT IF(IS_USED_LOCK(?) <=> CONNECTION_ID(), 2, GET_LOCK(?, ?)) LIMIT 1"
	shared = 2
)

// SessionLock waits until conn holds the lock, ctx ends, or the timeout has passed; the last is
// dblock.ErrBusy.
func (m *MySQL) SessionLock(ctx context.Context, conn *sql.Conn) error {
	timeout := cmp.Or(m.Timeout, DefaultTimeout)
	deadline := time.Now().Add(timeout)
	for {
		// MySQL rounds the wait to whole seconds, and a second is also how long a server goes on
		// waiting for a client that has left.
		left := time.Until(deadline)
		last := left < time.Second
		wait := 1
		if last {
			wait = 0
			if err := pace.Sleep(ctx, max(left, 0)); err != nil {
				return fmt.Errorf("dblock: waiting for the migration lock: %w", err)
			}
		}
		got, err := query(ctx, conn, tryGet, m.name(), m.name(), wait)
		if err != nil {
			sqlconn.Discard(conn, m.Close)
			return errTaking(ctx, err)
		}
		if got {
			return nil
		}
		if last {
			return errTimeout(timeout)
		}
	}
}

// SessionUnlock releases the lock. It doesn't look at whether ctx has ended. An error says that
// this could not be confirmed, and that conn was closed for it.
func (m *MySQL) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	return unlock(ctx, conn, m.Close, func(ctx context.Context) (bool, error) {
		return query(ctx, conn, "SELECT RELEASE_LOCK(?) LIMIT 1", m.name())
	})
}

func query(ctx context.Context, conn *sql.Conn, query string, args ...any) (bool, error) {
	var answer sql.NullInt64
	if err := conn.QueryRowContext(ctx, query, args...).Scan(&answer); err != nil {
		return false, err
	}
	if !answer.Valid {
		return false, errNull
	}
	if answer.Int64 == shared {
		return false, errShared
	}
	return answer.Int64 == 1, nil
}

// name is 64 characters, as many as MySQL allows, and holds the database's name, because the server
// has one set of names for all of its databases. Servers that fold the case of database names must
// not see two; on others "App" and "app" wait for each other, which does no harm.
func (m *MySQL) name() string {
	sum := name("mysql", strings.ToLower(m.Database))
	return hex.EncodeToString(sum[:])
}
