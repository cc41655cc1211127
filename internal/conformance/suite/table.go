package suite

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const (
	tableLock  = 5 * time.Second        // for how long a table stays locked at least
	hurry      = 100 * time.Millisecond // the deadline of calls that give up
	eachCalls  = 8                      // of each kind, with that deadline and without
	tableSlack = 2 * time.Second        // of a busy machine
)

// BehindATable has another session lock a table, and makes calls that need it. Some give up soon
// and begin again. Never more sessions wait than the pool may have connections, and soon none that
// has waited for long. A call without a deadline returns within longest; 0: none is made.
func (d *DB) BehindATable(
	t *testing.T, table string, conns int64, longest time.Duration, calls map[string]func(context.Context) error,
) {
	t.Helper()
	begin, lock, end := "DO 0", "LOCK TABLES "+table+" WRITE", "UNLOCK TABLES"
	waits := "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'Waiting%'"
	long := " AND time > 3"
	if d.Postgres() {
		begin, lock, end = "BEGIN", "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE", "ROLLBACK"
		waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
		long = " AND query_start < now() - INTERVAL '3 s'"
	}
	conn := Must(d.DB.Conn(t.Context()))(t)
	defer func() { _ = conn.Close() }()
	Must(conn.ExecContext(t.Context(), begin))(t)
	Must(conn.ExecContext(t.Context(), lock))(t)
	stop := time.Now().Add(tableLock)
	var all sync.WaitGroup
	for what, call := range calls {
		for range eachCalls {
			all.Go(func() {
				for began := time.Now(); longest > 0 && began.Before(stop); began = time.Now() {
					assert.Error(t, call(t.Context()), what)
					assert.Less(t, time.Since(began), longest+tableSlack, what)
				}
			})
			all.Go(func() {
				for time.Now().Before(stop) {
					ctx, cancel := context.WithTimeout(t.Context(), hurry)
					assert.Error(t, call(ctx), what)
					cancel()
				}
			})
		}
	}
	most, returned := int64(0), make(chan struct{})
	go func() { all.Wait(); close(returned) }()
	for open := true; open; {
		most = max(most, d.Count(t, waits))
		select {
		case <-returned:
			open = false
		case <-time.After(hurry):
		}
	}
	assert.LessOrEqual(t, most, conns, "sessions that wait")
	d.Until(t, waits+long, 0)
	Must(conn.ExecContext(t.Context(), end))(t)
}
