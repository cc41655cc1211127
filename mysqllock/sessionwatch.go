package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/session"
)

var _ session.WatchDriver = (*sessionDriver)(nil)

// Watch takes a connection of the pool for statements that look, pause and look again at the
// server.
func (e *sessionDriver) Watch(ctx context.Context) (session.Watch, error) {
	if most := e.pool.Stats().MaxOpenConnections; most > 0 && most < max(sparing, e.conns+2) { // one stays with the host
		return nil, fmt.Errorf("%w: a pool of %d connections has none to spare", dblock.ErrUnsupported, most)
	}
	conn, err := e.pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	w := &sessionWatch{conn}
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION %s = 0", e.limit)); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// sessionWatch is a connection that only looks. It never goes back to the pool.
type sessionWatch struct{ conn *sql.Conn }

// Close ends the connection. A statement that was given up ends by itself, at the server, when its
// look is over.
func (w *sessionWatch) Close() {
	mysql.Discard(w.conn)
	_ = w.conn.Close()
}

// watchStep is the time between two looks of a statement.
const watchStep = 2 * time.Millisecond

// The statement reads no table, so that it keeps no snapshot: it counts up to a thousand, pauses at
// each number, and ends at the first one at which a lock is free.
const (
	tenOf    = "(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	watchSQL = "SELECT step.n FROM (SELECT a.n + 10 * b.n + 100 * c.n AS n FROM " + tenOf + " a CROSS JOIN " + tenOf + " b CROSS JOIN " + tenOf + " c) step" +
		" WHERE step.n < %d AND IF(IF(step.n = 0, 0, SLEEP(%f)) = 0, %s, 0) LIMIT 1"
)

// Watch is one statement, and another one if a lock is free, which says which.
func (w *sessionWatch) Watch(ctx context.Context, ids []session.ID, d time.Duration) ([]session.ID, error) {
	free := make([]string, len(ids))
	for i, id := range ids {
		// Of a name that depends on nothing the server would look once, before it begins to count.
		free[i] = "IS_FREE_LOCK(IF(step.n < 0, '', " + quote(string(id)) + "))"
	}
	query := fmt.Sprintf(watchSQL, min(int64(d/watchStep)+1, maxSteps), watchStep.Seconds(), strings.Join(free, " OR "))
	var step int64
	switch err := w.conn.QueryRowContext(ctx, query).Scan(&step); err {
	case nil:
	case sql.ErrNoRows:
		return nil, nil
	default:
		return nil, err
	}
	var which string
	if err := w.conn.QueryRowContext(ctx, "SELECT CONCAT("+strings.Join(free, ", ")+") FROM (SELECT 0 AS n) step LIMIT 1").Scan(&which); err != nil {
		return nil, err
	}
	var now []session.ID
	for i, id := range ids {
		if i < len(which) && which[i] == '1' {
			now = append(now, id)
		}
	}
	return now, nil
}
