package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	locksuite "github.com/dblock-go/dblock/internal/conformance/lock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
)

// Session is an engine room's session locks.
type Session struct {
	Kind devdb.Kind

	// Open makes a Locker on the database of dsn, as a process of its own would: with a pool that closePool ends. Its
	// connections are the dialer's; nil: the usual ones.
	Open func(ctx context.Context, dsn string, dialer *faultconn.Dialer, o SessionOptions) (l dblock.Locker, closePool func(), err error)

	// Names are what the server calls a key by, and the mark of those who wait for it: arguments of GET_LOCK. Postgres lists
	// what there is.
	Names func(database, key string) (lock, mark string)
}

// SessionOptions are those of the engine rooms' SessionOptions that the suite sets.
type SessionOptions struct {
	Namespace, Label, Schema string
	Raw                      bool
	IdleTimeout, Poll        time.Duration
	MaxConns                 int
	ServerQueue              bool
	Observer                 dblock.Observer
}

// Run runs the suite.
func (e Session) Run(t *testing.T) {
	e.runContract(t)
	e.run(t, map[string]func(*testing.T, *env){
		"SessionsExclude":              sessionsExclude,
		"RefusesWhatItLacks":           sessionRefusesWhatItLacks,
		"RefusesBadOptions":            sessionRefusesBadOptions,
		"RefusesBadKeys":               sessionRefusesBadKeys,
		"RawKeysAreTheServers":         sessionRawKeysAreTheServers,
		"RawWaitsLeaveOthersAlone":     sessionRawWaitsLeaveOthersAlone,
		"TellsTheObserver":             sessionTellsTheObserver,
		"CloseGivesBack":               sessionCloseGivesBack,
		"CloseInLine":                  sessionCloseInLine,
		"ALeaverIsNoTrouble":           aLeaverIsNoTrouble,
		"TriesAfterARelease":           triesAfterARelease,
		"ManyLocksFewConns":            manyLocksFewConns,
		"MoreThanItMay":                moreThanItMay,
		"IsLinearizable":               sessionIsLinearizable,
		"ServedInLine":                 sessionServedInLine,
		"LeavesTheLine":                sessionLeavesTheLine,
		"TheLineEndsWithConns":         theLineEndsWithConns,
		"DoubtEndsNoOtherLock":         doubtEndsNoOtherLock,
		"TheServerQueueWaitsOn":        theServerQueueWaitsOn,
		"ALostLockIsNotReleased":       aLostLockIsNotReleased,
		"ALostLockInLineIsNotReleased": aLostLockInLineIsNotReleased,
		"NoHandOverWhenDead":           noHandOverWhenDead,
		"InterruptedHandOvers":         interruptedHandOvers,
		"WaitersOutliveASession":       waitersOutliveASession,
		"CostsFewRoundTrips":           sessionsCostFewRoundTrips,
		"ADeadOneIsFreedAtOnce":        aDeadOneIsFreedAtOnce,
	})
}

// RunFaults runs the tests of faults and crowds.
func (e Session) RunFaults(t *testing.T) {
	e.runCut(t)
	e.run(t, map[string]func(*testing.T, *env){
		"CancelsRaceGrants":          cancelsRaceGrants,
		"ControlCancelsLeak":         controlCancelsLeak,
		"AReleaseBesideTheDead":      aReleaseBesideTheDead,
		"AcquireCutAnywhere":         sessionAcquireCutAnywhere,
		"ReleaseCutAnywhere":         sessionReleaseCutAnywhere,
		"WaitCutAnywhere":            sessionWaitCutAnywhere,
		"OpenCutAnywhere":            sessionOpenCutAnywhere,
		"AFrozenHolderIsFreed":       aFrozenHolderIsFreed,
		"ABlackHoleIsFreed":          aBlackHoleIsFreed,
		"ExcludesThroughKills":       excludesThroughKills,
		"ASilentServerKeepsNoCaller": aSilentServerKeepsNoCaller,
		"AKilledSessionIsLost":       aKilledSessionIsLost,
	})
}

func (e Session) run(t *testing.T, tests map[string]func(*testing.T, *env)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, e.sessions(t))
		})
	}
}

// runContract runs what leases and session locks promise alike, in both ways to wait.
func (e Session) runContract(t *testing.T) {
	common := map[string]func(*testing.T, locksuite.Place){}
	if e.Kind == devdb.Postgres {
		common["ReadersShare"] = locksuite.ReadersShare
		common["WaitsForReaders"] = locksuite.WaitsForReaders
		common["AWriterIsLetIn"] = locksuite.AWriterIsLetIn
		common["ReadersDontUpgrade"] = locksuite.ReadersDontUpgrade
		common["ReadersDontWait"] = locksuite.ReadersDontWait
	}
	if e.Kind == devdb.Postgres {
		for name, test := range map[string]func(*testing.T, *env){
			"ReadersTryBesideAWriter":   readersTryBesideAWriter,
			"ReadersHearOfAWriter":      readersHearOfAWriter,
			"LostReadersAreNotReleased": lostReadersAreNotReleased,
			"AWriterInLineIsLetIn":      aWriterInLineIsLetIn,
			"HoldsNoSnapshot":           holdsNoSnapshot,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, e.sessions(t))
			})
		}
	}
	for _, inLine := range []bool{false, true} {
		for name, test := range common {
			if inLine {
				name += "InLine"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := e.sessions(t)
				s.inLine = inLine
				test(t, locksuite.Place{LeasePlace: s})
			})
		}
	}
}

// env is a database in which processes have session locks, and what is asked of it.
type env struct {
	e      Session
	dsn    string
	db     *sql.DB
	inLine bool // who waits does so at the server

	mu   sync.Mutex
	keys map[string]bool // that were asked for
}

func (e Session) sessions(t *testing.T) *env {
	t.Helper()
	s := &env{e: e, dsn: testdb.DSN(t, e.Kind), keys: map[string]bool{}}
	s.db = suite.Connect(t, e.Kind, s.dsn)
	return s
}

// mostInLine is enough connections for the calls of a test that wait at the server.
const mostInLine = 60

// process is a Locker as a process of its own would have it. Once the test has ended no lock may be left, and it must
// close without an error.
func (s *env) process(t *testing.T, o SessionOptions) dblock.Locker {
	t.Helper()
	return s.processOn(t, nil, o)
}

func (s *env) processOn(t *testing.T, dialer *faultconn.Dialer, o SessionOptions) dblock.Locker {
	t.Helper()
	l, closePool, err := s.open(t.Context(), dialer, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Quiet(t)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		closePool()
	})
	return l
}

func (s *env) open(ctx context.Context, dialer *faultconn.Dialer, o SessionOptions) (dblock.Locker, func(), error) {
	if o.IdleTimeout == 0 {
		o.IdleTimeout = time.Minute // a busy machine must not lose what a test holds
	}
	l, closePool, err := s.e.Open(ctx, s.dsn, dialer, o)
	if err != nil {
		return nil, nil, err
	}
	return &seen{l, s}, closePool, nil
}

// seen notes which keys are asked for.
type seen struct {
	dblock.Locker
	s *env
}

func (l *seen) note(key string) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.keys[key] = true
}

func (l *seen) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	l.note(key)
	return l.Locker.Acquire(ctx, key, opts...)
}

func (l *seen) TryAcquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	l.note(key)
	return l.Locker.TryAcquire(ctx, key, opts...)
}

// Quiet waits until the server has no lock of the test's any more: nobody holds one, and nobody waits.
func (s *env) Quiet(t *testing.T) {
	t.Helper()
	if t.Failed() {
		return // it has said why
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // there may be ten thousand to ask about
	defer cancel()
	for {
		left, err := s.left(ctx)
		if err == nil && left == "" {
			return
		}
		if ctx.Err() != nil || err != nil {
			t.Errorf("left on the server: %s %v", left, err)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// left tells which locks the server has, of all those that were asked for, and of those who wait for them.
func (s *env) left(ctx context.Context) (left string, err error) {
	if s.e.Kind == devdb.Postgres {
		err := s.db.QueryRowContext(ctx, `SELECT COALESCE(string_agg(format('%s %s/%s/%s %s', pid, classid, objid, objsubid, mode), ', '), '')
			FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&left)
		return left, err
	}
	var database string
	if err := s.db.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&database); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.keys {
		lock, mark := s.e.Names(database, key)
		var locked, marked sql.NullInt64
		if err := s.db.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?), IS_USED_LOCK(?)", lock, mark).Scan(&locked, &marked); err != nil {
			return "", err
		}
		if locked.Valid || marked.Valid {
			left += fmt.Sprintf("%q by %v, waited for by %v; ", key, locked, marked)
		} else {
			delete(s.keys, key)
		}
	}
	return left, nil
}

func (s *env) count(t *testing.T, query string, args ...any) (n int64) {
	t.Helper()
	if err := s.db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%v in %s", err, query)
	}
	return n
}

// holder is the server's number for the connection that has a key; 0: none.
func (s *env) holder(t *testing.T, key string) (id int64) {
	t.Helper()
	var got sql.NullInt64
	query := `SELECT min(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND (classid::bigint << 32 | objid::bigint) = ` + "%s"
	lock, _ := s.e.Names(s.database(t), key)
	if s.e.Kind == devdb.Postgres {
		query = fmt.Sprintf(query, lock)
	} else {
		query = "SELECT IS_USED_LOCK('" + lock + "')"
	}
	if err := s.db.QueryRowContext(t.Context(), query).Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got.Int64
}

func (s *env) database(t *testing.T) (name string) {
	t.Helper()
	query := "SELECT DATABASE()"
	if s.e.Kind == devdb.Postgres {
		query = "SELECT current_database()"
	}
	if err := s.db.QueryRowContext(t.Context(), query).Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

// end has the server end a connection, or the statement that it is in.
func (s *env) end(ctx context.Context, id int64, statement bool) error {
	query := map[bool]string{false: "KILL %d", true: "KILL QUERY %d"}[statement]
	if s.e.Kind == devdb.Postgres {
		query = map[bool]string{false: "SELECT pg_terminate_backend(%d)", true: "SELECT pg_cancel_backend(%d)"}[statement]
	}
	_, err := s.db.ExecContext(ctx, fmt.Sprintf(query, id))
	return err
}

// sessionLeases is what the suite of the leases asks for, as far as session locks have it.
type sessionLeases struct{ dblock.Locker }

var errNotThere = errors.New("session locks have no such thing")

func (sessionLeases) Held(context.Context) ([]dblock.HeldLock, error) { return nil, errNotThere }

func (sessionLeases) Holder(context.Context, string) (dblock.HeldLock, error) {
	return dblock.HeldLock{}, errNotThere
}

func (sessionLeases) Sweep(context.Context) (int64, error) { return 0, errNotThere }

func (sessionLeases) RunSweeper(context.Context, time.Duration) error { return errNotThere }

func (sessionLeases) ForceRelease(context.Context, string, int64) error { return errNotThere }

func (sessionLeases) SetPermits(context.Context, string, int) error { return errNotThere }

func (sessionLeases) AcquireAll(context.Context, []string, ...dblock.Option) (*dblock.Lock, error) {
	return nil, errNotThere
}

func (sessionLeases) TryAcquireAll(context.Context, []string, ...dblock.Option) (*dblock.Lock, error) {
	return nil, errNotThere
}

var _ locksuite.LeasePlace = (*env)(nil)

// OpenLeases makes a Locker for the suite of the leases.
func (s *env) OpenLeases(ctx context.Context, o locksuite.LeaseOptions) (locksuite.Leases, func(), error) {
	so := SessionOptions{Poll: o.Poll, Label: o.Label, Observer: o.Observer}
	if s.inLine {
		so.ServerQueue, so.MaxConns = true, mostInLine
	}
	l, closePool, err := s.open(ctx, nil, so)
	if err != nil {
		return nil, nil, err
	}
	return sessionLeases{l}, closePool, nil
}

// Check finds nothing: session locks have no token.
func (s *env) Check(context.Context, locksuite.Leases, *dblock.Lock) error { return errNotThere }

// ForgetMembers and the next two find nothing to change.
func (s *env) ForgetMembers(*testing.T) {}

// ExpireMembers finds none.
func (s *env) ExpireMembers(*testing.T) {}

// AgeLeases finds none.
func (s *env) AgeLeases(*testing.T) {}

// Tickets finds none.
func (s *env) Tickets(*testing.T) int { return 0 }

// Rows counts who waits, of what there is.
func (s *env) Rows(t *testing.T) (members, leases, waiters int) {
	return 0, 0, s.waiters(t, "k")
}

// waiters is how many processes, or calls in the server's line, wait for a key.
func (s *env) waiters(t *testing.T, key string) int {
	t.Helper()
	if s.e.Kind == devdb.Postgres {
		return int(s.count(t, `SELECT count(*) FROM pg_locks l WHERE locktype = 'advisory' AND (NOT granted OR objsubid = 2 AND mode = 'ShareLock')
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`))
	}
	_, mark := s.e.Names(s.database(t), key)
	return int(s.count(t, "SELECT IS_USED_LOCK(?) IS NOT NULL", mark) + s.count(t,
		"SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'User%lock' AND info LIKE '%GET_LOCK%'"))
}
