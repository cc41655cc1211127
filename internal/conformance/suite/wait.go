package suite

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/devdb"
)

// RowWaits counts the sessions that wait for a row's lock, in the database that it is asked in.
func RowWaits(kind devdb.Kind) string {
	if kind == devdb.Postgres {
		return "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	}
	return "SELECT count(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id " +
		"WHERE x.trx_state = 'LOCK WAIT' AND p.db = DATABASE()"
}

// Until waits until a condition holds.
func Until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for ctx := Soon(t); !is(); SleepFor(ctx, 2*time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("it never came to be that %s", what)
		}
	}
}

// Wait waits for a value of a channel.
func Wait[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-Soon(t).Done():
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}

// As returns the error of type E in err, or ends the test.
func As[E error](t *testing.T, err error) (as E) {
	t.Helper()
	require.ErrorAs(t, err, &as)
	return as
}

// Soon bounds what has to happen, on however busy a machine.
func Soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

const FrozenDeadline = 100 * time.Millisecond

// FrozenWithin is how long a call may take while the server is frozen: a release waits 1 s, an acquisition until
// its deadline. The rest is for a busy machine. Without a bound of its own a release took half of the TTL, three
// times.
const FrozenWithin = 4 * time.Second

func SleepFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
