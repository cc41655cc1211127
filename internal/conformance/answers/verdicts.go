package answers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/internal/testdb"
)

// Verdicts are a driver's classes of errors.
type Verdicts struct {
	Kind                                 devdb.Kind
	Retryable, IsLockTimeout, IsDeadlock func(error) bool
	Of                                   func(error) sqlerr.Class
}

// verdict is a driver's class of an error: for its users, and for dblock if nothing was written.
type verdict struct {
	Retryable, LockTimeout, Deadlock bool
	Class                            sqlerr.Class
}

// errorCase provokes an error. It gets two sessions, and the table t(id, v) with rows 1 and 2.
type errorCase struct {
	name    string
	provoke func(*sessions) error
	want    verdict
	on      []devdb.Kind // nil: all
}

var (
	conflict = verdict{Retryable: true, Class: sqlerr.Retryable}
	deadlock = verdict{Retryable: true, Deadlock: true, Class: sqlerr.Retryable}
	waited   = verdict{LockTimeout: true, Class: sqlerr.Busy}

	others = []devdb.Kind{devdb.MySQL, devdb.MariaDB}
)

// errorCases: the same error for the same thing, on every engine.
var errorCases = []errorCase{
	{"deadlock", deadlocked, deadlock, nil},
	{"serialization failure", writesSkewed, conflict, []devdb.Kind{devdb.Postgres}},
	{"serialization deadlock", writesSkewed, deadlock, others}, // InnoDB keeps SERIALIZABLE by locks: what can't be in order waits in a circle
	{"stale snapshot", wroteStale, conflict, []devdb.Kind{devdb.Postgres, devdb.MariaDB}},
	{"NOWAIT", notWaited, waited, nil},
	{"lock timeout", waitedTooLong, waited, nil},
	{"statement timeout", ranTooLong, verdict{Class: sqlerr.Busy}, nil},
	{"duplicate key", each("INSERT INTO t VALUES (1, 1)"), verdict{Class: sqlerr.Duplicate}, nil},
	{"CHECK", each("UPDATE t SET v = -1 WHERE id = 1"), verdict{Class: sqlerr.BadInput}, nil},
	{"missing table", each("SELECT 1 FROM missing"), verdict{Class: sqlerr.NoSchema}, nil},
	{"read-only transaction", wroteReadOnly, verdict{Class: sqlerr.Unavailable}, nil},
	{"killed connection", killed, verdict{Class: sqlerr.Unavailable}, nil},
	{"named locks", deadlockedByName, deadlock, []devdb.Kind{devdb.Postgres, devdb.MariaDB}},
	// For MySQL nothing is rolled back: dblock's own statements are not to be sent again for it.
	{"named locks on MySQL", deadlockedByName, verdict{Retryable: true, Deadlock: true, Class: sqlerr.Unclassified}, []devdb.Kind{devdb.MySQL}},
}

// Run provokes every error on a real server.
func (v Verdicts) Run(t *testing.T) {
	dsn := testdb.DSN(t, v.Kind)
	for _, c := range errorCases {
		if c.on != nil && !slices.Contains(c.on, v.Kind) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			err := c.provoke(newSessions(t, v.Kind, dsn))
			require.Error(t, err)
			for _, err := range []error{err, fmt.Errorf("a service: %w", errors.Join(errors.New("another"), err))} {
				assert.Equal(t, c.want, v.of(err), "%v", err)
			}
			swapped := v // the control: a driver that takes one for the other is seen
			swapped.Retryable, swapped.IsLockTimeout = v.IsLockTimeout, v.Retryable
			if c.want.Retryable != c.want.LockTimeout {
				assert.NotEqual(t, c.want, swapped.of(err))
			}
			// What is fenced off, lost or unknown is never run again, whatever is to blame.
			for _, final := range []error{dblock.ErrFenced, dblock.ErrLost, dblock.ErrOutcomeUnknown} {
				assert.False(t, v.Retryable(fmt.Errorf("%w: %w", final, err)), "%v", final)
			}
		})
	}
	t.Run("of dblock's own", func(t *testing.T) {
		assert.True(t, v.Retryable(fmt.Errorf("a service: %w", dblock.ErrConflict)))
		for _, err := range []error{nil, context.Canceled, dblock.ErrBusy, dblock.ErrUnavailable, dblock.ErrDeadlock} {
			assert.False(t, v.Retryable(err) || v.IsLockTimeout(err) || v.IsDeadlock(err), "%v", err)
		}
	})
}

func (v Verdicts) of(err error) verdict {
	return verdict{v.Retryable(err), v.IsLockTimeout(err), v.IsDeadlock(err), v.Of(sqlerr.Unwritten(err))}
}

// sessions are two of one database.
type sessions struct {
	*testing.T
	kind devdb.Kind
	a, b *sql.Conn
}

func newSessions(t *testing.T, kind devdb.Kind, dsn string) *sessions {
	t.Helper()
	db := suite.OpenDB(t, kind, dsn)
	s := &sessions{t, kind, suite.Must(db.Conn(t.Context()))(t), suite.Must(db.Conn(t.Context()))(t)}
	t.Cleanup(func() { _, _ = s.a.Close(), s.b.Close() })
	s.must(s.a, "DROP TABLE IF EXISTS t", "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL, CHECK (v >= 0))",
		"INSERT INTO t VALUES (1, 0), (2, 0)")
	return s
}

func (s *sessions) exec(c *sql.Conn, query string) error {
	return suite.Second(c.ExecContext(s.Context(), query))
}

func (s *sessions) must(c *sql.Conn, queries ...string) {
	s.Helper()
	for _, query := range queries {
		require.NoError(s, s.exec(c, query), query)
	}
}

// on is the text for the engine.
func (s *sessions) on(postgres, mysql, mariadb string) string {
	return map[devdb.Kind]string{devdb.Postgres: postgres, devdb.MySQL: mysql, devdb.MariaDB: mariadb}[s.kind]
}

// begin begins in both sessions.
func (s *sessions) begin(isolation string) {
	s.Helper()
	for _, c := range []*sql.Conn{s.a, s.b} {
		if s.kind == devdb.Postgres {
			s.must(c, "BEGIN ISOLATION LEVEL "+isolation)
		} else {
			s.must(c, "SET TRANSACTION ISOLATION LEVEL "+isolation, "START TRANSACTION")
		}
	}
}

const (
	add1 = "UPDATE t SET v = v + 1 WHERE id = 1"
	add2 = "UPDATE t SET v = v + 1 WHERE id = 2"
)

// each is a case of one statement.
func each(query string) func(*sessions) error {
	return func(s *sessions) error { return s.exec(s.a, query) }
}

// together runs a statement in each session at once. One must fail; its rollback frees the other.
func (s *sessions) together(a, b, rollback string) error {
	type outcome struct {
		of  *sql.Conn
		err error
	}
	ends := make(chan outcome, 2)
	for c, query := range map[*sql.Conn]string{s.a: a, s.b: b} {
		go func() { ends <- outcome{c, s.exec(c, query)} }()
	}
	first := <-ends
	if first.err != nil {
		s.must(first.of, rollback)
		<-ends
		return first.err
	}
	return (<-ends).err
}

func deadlocked(s *sessions) error {
	s.begin("READ COMMITTED")
	s.must(s.a, add1)
	s.must(s.b, add2)
	return s.together(add2, add1, "ROLLBACK")
}

// writesSkewed: each reads what the other writes, so that neither was before the other.
func writesSkewed(s *sessions) error {
	s.begin("SERIALIZABLE")
	s.must(s.a, "SELECT sum(v) FROM t")
	s.must(s.b, "SELECT sum(v) FROM t")
	if err := s.together(add1, add2, "ROLLBACK"); err != nil {
		return err
	}
	s.must(s.a, "COMMIT")
	return s.exec(s.b, "COMMIT")
}

// wroteStale: the row has changed since the transaction has first read.
func wroteStale(s *sessions) error {
	if s.kind == devdb.MariaDB {
		s.must(s.a, "SET innodb_snapshot_isolation = ON")
	}
	s.begin("REPEATABLE READ")
	s.must(s.a, "SELECT v FROM t WHERE id = 1")
	s.must(s.b, "UPDATE t SET v = 7 WHERE id = 1", "COMMIT")
	return s.exec(s.a, add1)
}

func notWaited(s *sessions) error {
	s.begin("READ COMMITTED")
	s.must(s.a, add1)
	return s.exec(s.b, "SELECT v FROM t WHERE id = 1 FOR UPDATE NOWAIT")
}

func waitedTooLong(s *sessions) error {
	inSeconds := "SET innodb_lock_wait_timeout = 1"
	s.must(s.b, s.on("SET lock_timeout = '10ms'", inSeconds, inSeconds))
	s.begin("READ COMMITTED")
	s.must(s.a, add1)
	return s.exec(s.b, add1)
}

// ranTooLong: SLEEP alone is ended without an error.
func ranTooLong(s *sessions) error {
	if s.kind == devdb.Postgres {
		s.must(s.a, "SET statement_timeout = '50ms'")
	}
	return s.exec(s.a, s.on("SELECT pg_sleep(60)",
		"SELECT /*+ MAX_EXECUTION_TIME(50) */ 1 FROM t WHERE SLEEP(60)",
		"SET STATEMENT max_statement_time = 0.05 FOR SELECT 1 FROM t WHERE SLEEP(60)"))
}

func wroteReadOnly(s *sessions) error {
	s.must(s.a, "START TRANSACTION READ ONLY")
	return s.exec(s.a, add1)
}

func killed(s *sessions) error {
	id := "SELECT CONNECTION_ID()"
	var n int64
	require.NoError(s, s.a.QueryRowContext(s.Context(), s.on("SELECT pg_backend_pid()", id, id)).Scan(&n))
	s.must(s.b, s.on("SELECT pg_terminate_backend(", "KILL ", "KILL ")+strconv.FormatInt(n, 10)+s.on(")", "", ""))
	for { // the kill is asked for, and comes when the server gets to it
		if err := s.exec(s.a, "SELECT 1"); err != nil {
			return err
		}
	}
}

// deadlockedByName: by locks that belong to a session, which no rollback releases.
func deadlockedByName(s *sessions) error {
	take := func(name string) string {
		get := "SELECT GET_LOCK('" + name + "', 60) FROM t WHERE id = 1"
		return s.on("SELECT pg_advisory_lock("+name+")", get, get)
	}
	s.must(s.a, take("1"))
	s.must(s.b, take("2"))
	release := "SELECT RELEASE_ALL_LOCKS()"
	return s.together(take("2"), take("1"), s.on("SELECT pg_advisory_unlock_all()", release, release))
}
