package mysqllock

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Wait notes for ttl that a process waits for keys; with ttl 0 it ends that. It notifies no
// process: List shows it, and OthersWait reads it.
func (d *leaseDriver) Wait(ctx context.Context, keys []string, id member.ID, ttl time.Duration) error {
	return d.passing(ctx, inOrder(keys), id, func(on mysqldb.DBTX, keys [][]byte) error {
		if ttl == 0 {
			return d.q.StopWaiting(ctx, on, keys, id[:])
		}
		var args []any
		for _, key := range keys {
			args = append(args, key, id[:], ttl.Microseconds())
		}
		_, err := on.ExecContext(ctx, mysqldb.WaitForLeases, args...)
		return err
	})
}

// inOrder are keys as the server has them, in their order.
func inOrder(keys []string) [][]byte {
	list := make([][]byte, len(keys))
	for i, key := range slices.Sorted(slices.Values(keys)) {
		list[i] = []byte(key)
	}
	return list
}

// passing runs a statement on a member's rows of keys, but for those that another transaction has
// locked.
func (d *leaseDriver) passing(ctx context.Context, keys [][]byte, id member.ID, statement func(mysqldb.DBTX, [][]byte) error) error {
	err := d.bounded(ctx, mysql.AtOnce, func(on mysqldb.DBTX) error { return statement(on, keys) })
	if !mysql.IsLocked(err) {
		return sqlerr.Unwritten(err)
	}
	var there, free [][]byte
	err = d.once(ctx, func(on mysqldb.DBTX) (err error) {
		if there, err = d.q.WaitedFor(ctx, on, keys, id[:]); err == nil {
			free, err = d.q.FreeWaitedFor(ctx, on, keys, id[:])
		}
		return err
	})
	if err != nil {
		return sqlerr.Unwritten(err)
	}
	has := func(list [][]byte, key []byte) bool {
		return slices.ContainsFunc(list, func(k []byte) bool { return bytes.Equal(k, key) })
	}
	keys = slices.DeleteFunc(keys, func(key []byte) bool { return has(there, key) && !has(free, key) })
	if len(keys) == 0 {
		return nil
	}
	return sqlerr.Unwritten(d.bounded(ctx, mysql.AtOnce, func(on mysqldb.DBTX) error { return statement(on, keys) }))
}

// OthersWait reports whether another member that is alive waits for a key.
func (d *leaseDriver) OthersWait(ctx context.Context, key string, id member.ID) (bool, error) {
	return read(ctx, d.conns, func(on mysqldb.DBTX) (bool, error) { return d.q.OthersWait(ctx, on, []byte(key), id[:]) })
}

// Listen is not supported: these servers send no notifications.
func (d *leaseDriver) Listen(context.Context, func(), func(key string)) error {
	return fmt.Errorf("%w: MySQL and MariaDB have no notifications: keys that are waited for are watched", dblock.ErrUnsupported)
}

var _ lease.Watcher = (*leaseDriver)(nil)

const (
	sparing = 8 // the fewest connections of a pool that can spare one for a watch

	// leaves is how many unused connections a watch leaves in the pool, for one acquisition.
	leaves = 3

	// exhaustedFor is for how long a pool may have no unused connection until the watch ends. Then
	// others may hold theirs for long.
	exhaustedFor = 200 * time.Millisecond
)

// errNoneToSpare ends a watch, or the attempt to begin one. Calls poll meanwhile.
var errNoneToSpare = errors.New("mysqllock: the pool has no connection to spare for a watch")

// canSpare reports whether n connections of the pool are not in use.
func (d *leaseDriver) canSpare(n int) bool {
	s := d.db.Stats()
	return s.MaxOpenConnections == 0 || s.InUse+n <= s.MaxOpenConnections
}

// Watch takes a connection of the pool for statements that look, pause and look again at the
// server.
func (d *leaseDriver) Watch(ctx context.Context) (lease.Watch, error) {
	if d.watch <= 0 {
		return nil, fmt.Errorf("%w: LeaseOptions.Watch says so", dblock.ErrUnsupported)
	}
	if most := d.db.Stats().MaxOpenConnections; most > 0 && most < sparing {
		return nil, fmt.Errorf("%w: a pool of %d connections has none to spare", dblock.ErrUnsupported, most)
	}
	if !d.canSpare(1 + leaves) {
		return nil, errNoneToSpare
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	w := &watch{e: d, conn: conn}
	isolation, limit := "transaction_isolation", "max_execution_time"
	if d.db.MariaDB {
		isolation, limit = "tx_isolation", "max_statement_time"
	}
	settings := fmt.Sprintf("SET SESSION %s = 'READ-UNCOMMITTED', SESSION %s = 0, SESSION autocommit = 1", isolation, limit)
	if _, err := conn.ExecContext(ctx, settings); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// watch is a connection that only looks. It has settings of its own, and never goes back to the
// pool.
type watch struct {
	e    *leaseDriver
	conn *sql.Conn

	exhausted time.Time // since when the pool has had no unused connection; zero: it has one
}

// keepsOthersWaiting reports that the pool has had no unused connection for exhaustedFor.
func (w *watch) keepsOthersWaiting() bool {
	switch now := time.Now(); {
	case w.e.canSpare(1):
		w.exhausted = time.Time{}
	case w.exhausted.IsZero():
		w.exhausted = now
	default:
		return now.Sub(w.exhausted) >= exhaustedFor
	}
	return false
}

// Close ends the connection. A statement that was given up ends by itself, at the server, when its
// look is over.
func (w *watch) Close() {
	mysql.Discard(w.conn)
	_ = w.conn.Close()
}

// maxSteps is how many steps the statement counts up to.
const maxSteps = 1000

// Watch is one statement. Its error is errNoneToSpare if others wait for a connection.
func (w *watch) Watch(
	ctx context.Context, keys []string, turns []lease.Handle, told []lease.LeaseState, d time.Duration,
) ([]lease.LeaseState, error) {
	if w.keepsOthersWaiting() {
		return nil, errNoneToSpare
	}
	handles := make(mysql.List, len(turns))
	for i := range turns {
		handles[i] = turns[i][:]
	}
	args := []any{min(int64(d/w.e.watch)+1, maxSteps), w.e.watch.Microseconds(), values(keys)}
	for _, s := range told {
		args = append(args, []byte(s.Key), s.Token)
	}
	args = append(args, handles, values(keys), handles)
	rows, err := w.e.db.On(w.conn).QueryContext(ctx, mysqldb.WatchLeases, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var seen []lease.LeaseState
	for rows.Next() {
		var key, handle []byte
		var token int64
		if err := rows.Scan(&key, &token, &handle); err != nil {
			return nil, err
		}
		s := lease.LeaseState{Key: string(key), Token: token}
		if h := id(string(handle)); slices.Contains(turns, h) {
			s.Handle = h
		}
		seen = append(seen, s)
	}
	return seen, rows.Err()
}

// values are keys as arguments.
func values(keys []string) mysql.List {
	args := make(mysql.List, len(keys))
	for i, key := range keys {
		args[i] = []byte(key)
	}
	return args
}

// Free reads what is committed.
func (d *leaseDriver) Free(ctx context.Context, keys []string) (free []lease.LeaseState, err error) {
	of := make([][]byte, len(keys))
	for i, key := range keys {
		of[i] = []byte(key)
	}
	rows, err := read(ctx, d.conns, func(on mysqldb.DBTX) ([]mysqldb.FreeLeasesRow, error) {
		return d.q.FreeLeases(ctx, on, of)
	})
	for _, r := range rows {
		free = append(free, lease.LeaseState{Key: string(r.LeaseKey), Token: r.Token})
	}
	return free, err
}
