package lock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// LeasePlace is where processes share their leases: a database, or a server in memory.
type LeasePlace interface {
	// OpenLeases makes the Locker of a process of its own; end ends what it was made of.
	OpenLeases(ctx context.Context, o LeaseOptions) (l Leases, end func(), err error)

	// Check guards a lock, as its holder does before a write.
	Check(ctx context.Context, l Leases, lock *dblock.Lock) error

	// DeleteMembers deletes all members; ExpireMembers sets their ends to long ago.
	ForgetMembers(t *testing.T)
	ExpireMembers(t *testing.T)

	// AgeLeases makes all leases look unused for long.
	AgeLeases(t *testing.T)

	// Tickets counts the calls that wait with one.
	Tickets(t *testing.T) int

	Rows(t *testing.T) (members, leases, waiters int)
}

// Place is the fixture of the contract.
type Place struct {
	LeasePlace
	bubble bool // of testing/synctest, in which there are no subtests
}

// each runs a case of a test: as a parallel subtest, or at once in a bubble.
func (p Place) each(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	if p.bubble {
		t.Log(name)
		test(t)
		return
	}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t)
	})
}

// process opens the Locker of a process of its own. The test closes it at its end.
func (p Place) process(t *testing.T, o LeaseOptions) Leases {
	t.Helper()
	if o.TTL == 0 {
		o.TTL = time.Minute // a busy machine must not lose what a test holds
	}
	if o.Poll == 0 {
		o.Poll = 50 * time.Millisecond
	}
	l, end, err := p.OpenLeases(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		if q, ok := p.LeasePlace.(interface{ Quiet(*testing.T) }); ok {
			q.Quiet(t) // all locks were released
		}
		_ = suite.CloseWithin(l, 10*time.Second)
		end()
	})
	return l
}

// untilTickets waits until n calls wait with a ticket.
func (p Place) untilTickets(t *testing.T, n int) {
	t.Helper()
	suite.Until(t, "all calls wait with a ticket", func() bool { return p.Tickets(t) == n })
}

// env is the fixture of tests on a database with dblock's tables.
type env struct {
	*suite.DB
	e Lease
}

var _ LeasePlace = (*env)(nil)

func (e Lease) env(t *testing.T) *env {
	t.Helper()
	return e.envOn(suite.Migrated(t, e.Kind))
}

func (e Lease) envOn(db *suite.DB) *env { return &env{db, e} }

// as is v for the user of a DSN.
func (v *env) as(dsn string) *env { return v.e.envOn(v.As(dsn)) }

// onAServerOfItsOwn is an env on a server that no other test uses. If the server is given, it is v,
// and server is nil.
func (v *env) onAServerOfItsOwn(t *testing.T) (own *env, server *devdb.Server) {
	t.Helper()
	server, db := suite.OwnServer(t, v.Kind)
	if server == nil {
		return v, nil
	}
	return v.e.envOn(db), server
}

// process is that of Place.
func (v *env) process(t *testing.T, o LeaseOptions) Leases {
	t.Helper()
	return Place{LeasePlace: v}.process(t, o)
}

// processOn opens the Locker of a process on the dialer, with these options only. The test closes
// it at its end.
func (v *env) processOn(t *testing.T, dialer *faultconn.Dialer, o LeaseOptions) Leases {
	t.Helper()
	l, closePool, err := v.e.OpenOn(t.Context(), v.DSN, dialer, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = suite.CloseWithin(l, 10*time.Second)
		closePool()
	})
	return l
}

func (v *env) untilTickets(t *testing.T, n int) {
	t.Helper()
	Place{LeasePlace: v}.untilTickets(t, n)
}

func (v *env) OpenLeases(ctx context.Context, o LeaseOptions) (Leases, func(), error) {
	return v.e.Open(ctx, v.DSN, o)
}

func (v *env) Check(ctx context.Context, l Leases, lock *dblock.Lock) error {
	return v.e.Guarded(ctx, l, lock, "SELECT 1", func() {})
}

func (v *env) ForgetMembers(t *testing.T) { v.Exec(t, "DELETE FROM dblock_member") }

func (v *env) ExpireMembers(t *testing.T) {
	v.Exec(t, "UPDATE dblock_member SET expires_at = '2000-01-01'")
}

func (v *env) AgeLeases(t *testing.T) { v.Exec(t, "UPDATE dblock_lease SET changed_at = '2000-01-01'") }

func (v *env) Tickets(t *testing.T) int {
	query := "SELECT count(*) FROM dblock_ticket"
	if v.Kind != devdb.Postgres {
		query += " WHERE NOT served"
	}
	return int(v.Count(t, query))
}

func (v *env) Rows(t *testing.T) (members, leases, waiters int) {
	return int(v.Count(t, "SELECT count(*) FROM dblock_member")), int(v.Count(t, "SELECT count(*) FROM dblock_lease")),
		int(v.Count(t, "SELECT count(*) FROM dblock_lease_waiter"))
}

// fence is that of a lock of one key.
func fence(t *testing.T, lock *dblock.Lock) dblock.Fence {
	t.Helper()
	f, ok := lock.Fence()
	require.True(t, ok && f.Key == lock.Key() && f.Token > 0 && f.Handle != [16]byte{}, "a fence of %+v", f)
	return f
}

func token(t *testing.T, lock *dblock.Lock) int64 {
	t.Helper()
	return fence(t, lock).Token
}

// acquireSet acquires several keys at once.
func acquireSet(t *testing.T, l Leases, keys []string, opts ...dblock.Option) *dblock.Lock {
	t.Helper()
	return suite.Must(l.AcquireAll(suite.Soon(t), keys, opts...))(t)
}

// waiter is an Acquire that runs in a goroutine of its own.
type waiter struct {
	done chan struct{}
	lock *dblock.Lock
	err  error
}

func startWaiter(ctx context.Context, l dblock.Locker, key string, opts ...dblock.Option) *waiter {
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lock, w.err = l.Acquire(ctx, key, opts...)
	}()
	return w
}

// acquired waits for the lock, and ends the test if there is none.
func (w *waiter) acquired(t *testing.T) *dblock.Lock {
	t.Helper()
	<-w.done
	require.NoError(t, w.err)
	return w.lock
}

// refused waits for the error.
func (w *waiter) refused() error {
	<-w.done
	return w.err
}
