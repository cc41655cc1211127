package pglock_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	locksuite "github.com/dblock-go/dblock/internal/conformance/lock"
	sessionsuite "github.com/dblock-go/dblock/internal/conformance/session"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// sessionWaitTests are tests that the package doc of internal/conformance/session lists.
type sessionWaitTests struct{}

const advisoryLocks = " FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"

// sessionsOf opens the session locks of a process of its own.
func sessionsOf(t *testing.T, d *suite.DB, dialer *faultconn.Dialer, o sessionsuite.SessionOptions) dblock.Locker {
	t.Helper()
	o.IdleTimeout = time.Minute // a busy machine must not lose what a test holds
	l, closePool, err := openSession(t.Context(), d.DSN, dialer, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		assert.NoError(t, l.Close(ctx))
		closePool()
	})
	return l
}

// untilTwoWait waits until two calls wait for locks.
func untilTwoWait(t *testing.T, d *suite.DB) {
	t.Helper()
	suite.Until(t, "two wait", func() bool {
		return d.Count(t, "SELECT count(*)"+advisoryLocks+" AND (NOT granted OR objsubid = 2 AND mode = 'ShareLock')") >= 2
	})
}

// ReadersHearOfAWriter: readers that wait for a writer that itself had to wait are notified of its
// release.
func (sessionWaitTests) ReadersHearOfAWriter(t *testing.T, d *suite.DB) {
	pollsLate := sessionsuite.SessionOptions{Poll: time.Minute}
	a, b := sessionsOf(t, d, nil, pollsLate), sessionsOf(t, d, nil, pollsLate)
	for range 20 {
		reads := suite.Acquire(t, a, "k", dblock.WithShared())
		writer := suite.Waiter(t, b, "k")
		locksuite.KeptOut(t, a, "k")
		reader := suite.Waiter(t, a, "k", dblock.WithShared())
		suite.Release(t, reads)
		writes := writer()
		untilTwoWait(t, d)
		began := time.Now()
		suite.Release(t, writes)
		suite.Release(t, reader())
		assert.Less(t, time.Since(began), 30*time.Second, "until the reader heard of the release")
	}
	d.Until(t, "SELECT count(*)"+advisoryLocks, 0)
}

// HoldsNoSnapshot: a call that waits does not keep VACUUM from its work. The control is one that
// waits at the server.
func (sessionWaitTests) HoldsNoSnapshot(t *testing.T, d *suite.DB) {
	const held = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1 AND backend_xmin IS NOT NULL"
	lock := suite.Acquire(t, sessionsOf(t, d, nil, sessionsuite.SessionOptions{}), "k")
	plain := suite.Waiter(t, sessionsOf(t, d, nil, sessionsuite.SessionOptions{Label: "plain", Poll: time.Minute}), "k")
	control := suite.Waiter(t, sessionsOf(t, d, nil, sessionsuite.SessionOptions{Label: "at the server", ServerQueue: true}), "k")
	d.Until(t, held, 1, "at the server")
	untilTwoWait(t, d)
	d.Until(t, held, 0, "plain") // a statement has one while it runs
	suite.Release(t, lock)
	suite.Crowd(2, func(i int) { suite.Release(t, []func() *dblock.Lock{plain, control}[i]()) })
	d.Until(t, "SELECT count(*)"+advisoryLocks, 0)
}

// RawWaitsLeaveOthersAlone: a waiter takes nothing that another program could ask for, and asks
// seldom.
func (sessionWaitTests) RawWaitsLeaveOthersAlone(t *testing.T, d *suite.DB) {
	const poll = time.Second
	var dialer faultconn.Dialer
	l := sessionsOf(t, d, &dialer, sessionsuite.SessionOptions{Raw: true, Poll: poll})
	program := func() (ask func(query string) bool) { // another program's connection
		conn := suite.Must(d.Conn(t.Context()))(t)
		t.Cleanup(func() { _ = conn.Close() })
		return func(query string) bool {
			var ok sql.NullBool
			require.NoError(t, conn.QueryRowContext(t.Context(), query).Scan(&ok), query)
			return ok.Bool
		}
	}
	holder, other := program(), program()
	require.True(t, other("SELECT pg_try_advisory_lock(0, 43)"))
	ctx, cancel := context.WithCancel(t.Context())
	for _, key := range []string{"42", "43"} {
		require.True(t, holder("SELECT pg_try_advisory_lock("+key+")"))
		end := suite.Beside(func() { _, _ = l.Acquire(ctx, key) })
		defer end()
	}
	defer cancel()
	suite.Until(t, "a waiter shows itself", func() bool {
		return other("SELECT EXISTS (SELECT" + advisoryLocks + " AND objsubid = 2 AND pid <> pg_backend_pid())")
	})
	assert.True(t, other("SELECT pg_try_advisory_lock(0, 42)"), "to wait for 42 blocks another program's (0, 42)")
	dialer.Arm(0, 0, nil)
	began := time.Now()
	time.Sleep(poll)
	assert.LessOrEqual(t, dialer.Writes(), 20*int(1+time.Since(began)/poll), "messages of two waiters, that poll every second")
}
