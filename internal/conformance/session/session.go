package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	locksuite "github.com/dblock-go/dblock/internal/conformance/lock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// Session is a driver's session locks.
type Session struct {
	Kind devdb.Kind

	// Open makes a Locker on the database of dsn, as a process would: with a pool that closePool
	// ends. Its connections are the dialer's; nil: the usual ones.
	Open func(ctx context.Context, dsn string, dialer *faultconn.Dialer, o SessionOptions) (l dblock.Locker, closePool func(), err error)

	// Names returns what the server calls a key, and the mark of its waiters: arguments of
	// GET_LOCK. On Postgres the first is a number, and there is no mark.
	Names func(database, key string) (lock, mark string)
}

// SessionOptions are those of the drivers' SessionOptions that the suite sets.
type SessionOptions struct {
	Namespace, Label, Schema string
	Raw                      bool
	IdleTimeout, Poll        time.Duration
	MaxConns                 int
	ServerQueue              bool
	Observer                 dblock.Observer `json:"-"`
}

// The tests of doc.go are methods of these types.
type (
	tests      struct{}
	faultTests struct{}
)

// Run runs the suite.
func (e Session) Run(t *testing.T) {
	open := func(t *testing.T) *env { return e.env(suite.NewDB(t, e.Kind)) }
	suite.RunEach(t, tests{}, open)
	if e.Kind != devdb.Postgres {
		return // it has no readers
	}
	for name, test := range locksuite.Readers() { // with waits in the process and at the server
		for suffix, o := range map[string]SessionOptions{"": {}, "InLine": atServer} {
			t.Run(name+suffix, func(t *testing.T) {
				t.Parallel()
				s := open(t)
				s.ofLeases = o
				test(t, locksuite.Place{LeasePlace: s})
			})
		}
	}
}

// RunFaults runs the tests of faults and crowds.
func (e Session) RunFaults(t *testing.T) {
	e.runCut(t)
	suite.RunEach(t, faultTests{}, func(t *testing.T) *env { return e.env(suite.NewDB(t, e.Kind)) })
}

var (
	// atServer has calls wait at the server, with enough connections for those of a test.
	atServer = SessionOptions{ServerQueue: true, MaxConns: 60}

	quick = SessionOptions{Poll: 20 * time.Millisecond} // finds what ended without a release
)

// env is a database in which processes have session locks.
type env struct {
	*suite.DB
	locksuite.LeasePlace // what session locks lack
	e                    Session
	ofLeases             SessionOptions // of what OpenLeases opens

	mu   sync.Mutex
	keys map[string]bool // that were asked for
}

func (e Session) env(db *suite.DB) *env { return &env{DB: db, e: e, keys: map[string]bool{}} }

// process returns a Locker as a process of its own would have it. Once the test has ended no lock
// may be left, and it must close without an error.
func (s *env) process(t *testing.T, o SessionOptions) dblock.Locker {
	t.Helper()
	return s.processOn(t, nil, o)
}

func (s *env) processOn(t *testing.T, dialer *faultconn.Dialer, o SessionOptions) dblock.Locker {
	t.Helper()
	l, closePool, err := s.open(t.Context(), dialer, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.Quiet(t)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, l.Close(ctx))
		closePool()
	})
	return l
}

func (s *env) open(ctx context.Context, dialer *faultconn.Dialer, o SessionOptions) (dblock.Locker, func(), error) {
	if o.IdleTimeout == 0 {
		o.IdleTimeout = time.Minute // a busy machine must not lose what a test holds
	}
	l, closePool, err := s.e.Open(ctx, s.DSN, dialer, o)
	return &noting{l, s}, closePool, err
}

// noting notes which keys are asked for.
type noting struct {
	dblock.Locker
	s *env
}

func (l *noting) note(key string) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.keys[key] = true
}

func (l *noting) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	l.note(key)
	return l.Locker.Acquire(ctx, key, opts...)
}

func (l *noting) TryAcquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	l.note(key)
	return l.Locker.TryAcquire(ctx, key, opts...)
}

// Quiet waits until the server has no lock of the test's, and no waiter.
func (s *env) Quiet(t *testing.T) {
	t.Helper()
	if t.Failed() {
		return // it has said why
	}
	var left string
	var err error
	for ctx, cancel := context.WithTimeout(context.Background(), time.Minute); ; suite.SleepFor(ctx, 5*time.Millisecond) {
		if left, err = s.left(ctx); left == "" || ctx.Err() != nil {
			cancel()
			break
		}
	}
	assert.NoError(t, err)
	assert.Empty(t, left, "left on the server")
}

// advisory are the locks on Postgres; getLocks are the calls that wait at the others.
const (
	advisory = " FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
	getLocks = " FROM " + devdb.Processlist + " WHERE db = DATABASE() AND state LIKE 'User%lock' AND info LIKE '%GET_LOCK%'"
)

// left lists the locks that the server has, of all keys that were asked for, and their waiters.
func (s *env) left(ctx context.Context) (left string, err error) {
	if s.Postgres() {
		err := s.QueryRowContext(ctx, `SELECT COALESCE(string_agg(format('%s %s/%s/%s %s', pid, classid, objid, objsubid, mode), ', '), '')`+
			advisory).Scan(&left)
		return left, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for key := range s.keys {
		lock, mark := s.e.Names(s.database(), key)
		names = append(names, lock, mark)
	}
	for some := range slices.Chunk(names, 500) {
		var held string
		query := "SELECT CONCAT_WS(', '"
		for _, name := range some {
			query += ", IF(IS_USED_LOCK('" + name + "') IS NULL, NULL, '" + name + "')"
		}
		if err := s.QueryRowContext(ctx, query+")").Scan(&held); err != nil {
			return left, err
		}
		left += held
	}
	return left, nil
}

func (s *env) database() string {
	_, name, _ := strings.Cut(s.DSN, ")/")
	name, _, _ = strings.Cut(name, "?")
	return name
}

// holder is the server's number for the session that has a key; 0: none.
func (s *env) holder(t *testing.T, key string) (id int64) {
	t.Helper()
	lock, _ := s.e.Names(s.database(), key)
	if s.Postgres() {
		return s.Count(t, "SELECT min(pid)"+advisory+" AND objsubid = 1 AND granted AND (classid::bigint << 32 | objid::bigint) = "+lock)
	}
	return s.Count(t, "SELECT IS_USED_LOCK('"+lock+"')")
}

// endHolder has the server end the session that has a key.
func (s *env) endHolder(t *testing.T, key string) {
	t.Helper()
	require.NoError(t, s.EndSession(t.Context(), s.holder(t, key), false))
}

// atServer selects an aggregate of the sessions that wait at the server.
func (s *env) atServer(aggregate string) (query string) {
	if s.Postgres() {
		return "SELECT " + aggregate + "(pid)" + advisory + " AND NOT granted"
	}
	return "SELECT " + aggregate + "(id)" + getLocks
}

func (s *env) untilAtServer(t *testing.T, n int64) { t.Helper(); s.Until(t, s.atServer("count"), n) }

// waiters counts the processes, and the calls at the server, that wait for a key.
func (s *env) waiters(t *testing.T, key string) int {
	t.Helper()
	if s.Postgres() {
		return int(s.Count(t, "SELECT count(*)"+advisory+" AND (NOT granted OR objsubid = 2 AND mode = 'ShareLock')"))
	}
	_, mark := s.e.Names(s.database(), key)
	return int(s.Count(t, "SELECT IS_USED_LOCK(?) IS NOT NULL", mark) + s.Count(t, s.atServer("count")))
}

func (s *env) untilWaiters(t *testing.T, key string, n int) {
	t.Helper()
	suite.Until(t, fmt.Sprintf("%d wait", n), func() bool { return s.waiters(t, key) >= n })
}

// waiting acquires beside the test; end waits for the error.
func waiting(ctx context.Context, l dblock.Locker, key string) (end func() error) {
	result := suite.Begin(func() (*dblock.Lock, error) { return l.Acquire(ctx, key) })
	return func() error { return suite.Second(result()) }
}

// leases is what the suite of the leases asks for, as far as session locks have it.
type leases struct {
	dblock.Locker
	lacking
}

type lacking struct{ locksuite.Leases }

// OpenLeases makes a Locker for the suite of the leases.
func (s *env) OpenLeases(ctx context.Context, o locksuite.LeaseOptions) (locksuite.Leases, func(), error) {
	so := s.ofLeases
	so.Poll, so.Label, so.Observer = o.Poll, o.Label, o.Observer
	l, closePool, err := s.open(ctx, nil, so)
	return leases{Locker: l}, closePool, err
}

// Rows counts the waiters, of all rows that leases have.
func (s *env) Rows(t *testing.T) (members, held, waiters int) { return 0, 0, s.waiters(t, "k") }
