package answers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
)

// Verdicts is an engine room whose judgement of errors is under test.
type Verdicts struct {
	Kind                                 devdb.Kind
	Retryable, IsLockTimeout, IsDeadlock func(error) bool
	Of                                   func(error) fault.Fault
}

// verdict is what an engine room says of an error: to those who use it, and to dblock itself where nothing was written.
type verdict struct {
	Retryable, LockTimeout, Deadlock bool
	Fault                            fault.Fault
}

// mishap provokes an error. It is given two sessions, outside transactions, and the table t(id, v) with rows 1 and 2.
type mishap struct {
	provoke func(*sessions) error
	want    verdict
	on      []devdb.Kind // where not everywhere
}

// mishaps: the same error for the same thing, on every engine.
var mishaps = map[string]mishap{
	"deadlock":              {provoke: deadlocked, want: verdict{Retryable: true, Deadlock: true, Fault: fault.Retry}},
	"serialization failure": {provoke: writesSkewed, want: verdict{Retryable: true, Fault: fault.Retry}, on: []devdb.Kind{devdb.Postgres}},
	// InnoDB keeps SERIALIZABLE by locks: what can't be in order waits in a circle.
	"serialization deadlock": {
		provoke: writesSkewed, want: verdict{Retryable: true, Deadlock: true, Fault: fault.Retry}, on: []devdb.Kind{devdb.MySQL, devdb.MariaDB},
	},
	"stale snapshot":        {provoke: wroteStale, want: verdict{Retryable: true, Fault: fault.Retry}, on: []devdb.Kind{devdb.Postgres, devdb.MariaDB}},
	"NOWAIT":                {provoke: notWaited, want: verdict{LockTimeout: true, Fault: fault.Busy}},
	"lock timeout":          {provoke: waitedTooLong, want: verdict{LockTimeout: true, Fault: fault.Busy}},
	"statement timeout":     {provoke: ranTooLong, want: verdict{Fault: fault.Busy}},
	"duplicate key":         {provoke: each("INSERT INTO t VALUES (1, 1)"), want: verdict{Fault: fault.Duplicate}},
	"CHECK":                 {provoke: each("UPDATE t SET v = -1 WHERE id = 1"), want: verdict{Fault: fault.Poison}},
	"missing table":         {provoke: each("SELECT 1 FROM missing"), want: verdict{Fault: fault.NoSchema}},
	"read-only transaction": {provoke: wroteReadOnly, want: verdict{Fault: fault.Unreachable}},
	"killed connection":     {provoke: killed, want: verdict{Fault: fault.Unreachable}},
	"named locks": {
		provoke: deadlockedByName, want: verdict{Retryable: true, Deadlock: true, Fault: fault.Retry}, on: []devdb.Kind{devdb.Postgres, devdb.MariaDB},
	},
	// For MySQL nothing is rolled back: dblock's own statements are not to be sent again for it.
	"named locks on MySQL": {
		provoke: deadlockedByName, want: verdict{Retryable: true, Deadlock: true, Fault: fault.Other}, on: []devdb.Kind{devdb.MySQL},
	},
}

// Run provokes every mishap on a real server.
func (v Verdicts) Run(t *testing.T) {
	dsn := testdb.DSN(t, v.Kind)
	for name, m := range mishaps {
		if m.on != nil && !slices.Contains(m.on, v.Kind) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := newSessions(t, v.Kind, dsn)
			err := m.provoke(s)
			if err == nil {
				t.Fatal("nothing happened")
			}
			v.check(t, err, m.want)
			v.check(t, fmt.Errorf("a service: %w", errors.Join(errors.New("another"), err)), m.want)
			v.refusesFinal(t, err)
		})
	}
	t.Run("of dblock's own", v.ofOurOwn)
}

func (v Verdicts) check(t *testing.T, err error, want verdict) {
	t.Helper()
	if got := v.of(err); got != want {
		t.Errorf("%+v, want %+v: %v", got, want, err)
	}
	// The control: an engine room that takes one for the other is seen.
	swapped := v
	swapped.Retryable, swapped.IsLockTimeout = v.IsLockTimeout, v.Retryable
	if want.Retryable != want.LockTimeout && swapped.of(err) == want {
		t.Errorf("the wrong verdicts pass, too: %v", err)
	}
}

func (v Verdicts) of(err error) verdict {
	return verdict{v.Retryable(err), v.IsLockTimeout(err), v.IsDeadlock(err), v.Of(fault.NoWrite(err))}
}

// refusesFinal: what is fenced off, lost or unknown is never run again, whatever is to blame.
func (v Verdicts) refusesFinal(t *testing.T, err error) {
	t.Helper()
	for _, final := range []error{dblock.ErrFenced, dblock.ErrLost, dblock.ErrOutcomeUnknown} {
		if v.Retryable(fmt.Errorf("%w: %w", final, err)) {
			t.Errorf("it would run again after %v: %v", final, err)
		}
	}
}

func (v Verdicts) ofOurOwn(t *testing.T) {
	if !v.Retryable(fmt.Errorf("a service: %w", dblock.ErrConflict)) {
		t.Error("ErrConflict is not Retryable")
	}
	for _, err := range []error{nil, context.Canceled, dblock.ErrBusy, dblock.ErrUnavailable, dblock.ErrDeadlock} {
		if v.Retryable(err) || v.IsLockTimeout(err) || v.IsDeadlock(err) {
			t.Errorf("%v: no server said so, and a verdict is true", err)
		}
	}
}

// sessions are two of one database.
type sessions struct {
	*testing.T
	kind devdb.Kind
	a, b *sql.Conn
}

func newSessions(t *testing.T, kind devdb.Kind, dsn string) *sessions {
	db, err := suite.ConnectOn(kind, dsn, &faultconn.Dialer{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s := &sessions{T: t, kind: kind}
	for _, c := range []**sql.Conn{&s.a, &s.b} {
		if *c, err = db.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = (*c).Close() })
	}
	s.must(s.a, "DROP TABLE IF EXISTS t", "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL, CHECK (v >= 0))",
		"INSERT INTO t VALUES (1, 0), (2, 0)")
	return s
}

func (s *sessions) exec(c *sql.Conn, query string) error {
	_, err := c.ExecContext(s.Context(), query)
	return err
}

func (s *sessions) must(c *sql.Conn, queries ...string) {
	s.Helper()
	for _, query := range queries {
		if err := s.exec(c, query); err != nil {
			s.Fatalf("%s: %v", query, err)
		}
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
