package session

import (
	"database/sql"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// theServerQueueWaitsOn ends the connection and the statement of a call that waits at the server, more often than a call
// that fails tries again. The call waits on, as it does without ServerQueue, and gets the lock.
func theServerQueueWaitsOn(t *testing.T, s *env) {
	const ends = 6
	a, b := s.process(t, SessionOptions{}), s.process(t, SessionOptions{ServerQueue: true})
	lock := suite.Acquire(t, a, "k")
	type result struct {
		lock *dblock.Lock
		err  error
	}
	got := make(chan result, 1)
	go func() {
		lock, err := b.Acquire(suite.Soon(t), "k")
		got <- result{lock, err}
	}()
	last := int64(0)
	for n := range ends {
		id := int64(0)
		for ctx := suite.Soon(t); id == 0 || id == last; time.Sleep(time.Millisecond) {
			if len(got) > 0 || ctx.Err() != nil {
				t.Fatalf("after %d ends the call does not wait any more: %v", n, (<-got).err)
			}
			id = s.waiterAtServer(t)
		}
		last = id
		_ = s.end(t.Context(), id, n%2 == 0)
	}
	s.standAtServer(t, 1)
	suite.Release(t, lock)
	if r := <-got; r.err != nil {
		t.Error(r.err)
	} else {
		suite.Release(t, r.lock)
	}
}

// waiterAtServer is the connection of a call that waits at the server. 0: none waits.
func (s *env) waiterAtServer(t *testing.T) int64 {
	t.Helper()
	query := "SELECT max(id) FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'User%lock' AND info LIKE '%GET_LOCK%'"
	if s.e.Kind == devdb.Postgres {
		query = "SELECT max(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND " +
			"database = (SELECT oid FROM pg_database WHERE datname = current_database())"
	}
	var id sql.NullInt64
	if err := s.db.QueryRowContext(t.Context(), query).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id.Int64
}
