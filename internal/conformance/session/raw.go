package session

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// sessionRawKeysAreTheServers: what a raw key excludes, and nothing else, is what the server excludes for two other programs.
func sessionRawKeysAreTheServers(t *testing.T, s *env) {
	one, two := s.program(t), s.program(t)
	l := s.process(t, SessionOptions{Raw: true})
	pairs := [][2]string{{"42", "42"}, {"42", "-42"}, {"42", "4294967338"}}
	if s.e.Kind != devdb.Postgres {
		pairs = [][2]string{
			{"Nightly", "Nightly"}, {"Nightly", "nightly"}, {"nightly", "NIGHTLY"}, {"a", "a "}, {" a", "a"}, {"a_b", "a-b"},
			{strings.Repeat("Nr", 32), strings.Repeat("Nr", 32)}, {strings.Repeat("Nr", 32), strings.Repeat("nr", 32)},
		}
	}
	for _, p := range pairs {
		require.NoError(t, one.lock(p[0]), "another program")
		excluded := !two.try(t, p[1])
		two.free(t)
		lock, err := l.TryAcquire(t.Context(), p[1])
		if held := errors.Is(err, dblock.ErrNotAcquired); held != excluded || err != nil && !held {
			t.Errorf("another program holds %q, and %q is refused to others: %v; to dblock: %v", p[0], p[1], excluded, err)
		}
		one.free(t)
		if err == nil {
			suite.Release(t, lock)
		}
		lock = suite.Acquire(t, l, p[0])
		if granted := two.try(t, p[1]); granted == excluded {
			t.Errorf("dblock holds %q, and %q is granted to another program: %v", p[0], p[1], granted)
		}
		two.free(t)
		suite.Release(t, lock)
	}
}

// sessionRawWaitsLeaveOthersAlone: a waiter takes nothing that another program could ask for, and asks seldom, whatever others hold.
func sessionRawWaitsLeaveOthersAlone(t *testing.T, s *env) {
	if s.e.Kind != devdb.Postgres {
		return // a raw name is one name, and has no second form
	}
	var dialer faultconn.Dialer
	l, closePool, err := s.e.Open(t.Context(), s.dsn, &dialer, SessionOptions{Raw: true, Poll: time.Second})
	require.NoError(t, err, "open")
	defer closePool()
	defer func() { _ = l.Close(context.Background()) }()
	holder, other := s.program(t), s.program(t)
	granted := func(query string) (ok bool) {
		t.Helper()
		require.NoError(t, other.conn.QueryRowContext(t.Context(), query).Scan(&ok), query)
		return ok
	}
	if !granted("SELECT pg_try_advisory_lock(0, 43)") {
		t.Fatal("(0, 43) is not free")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waits sync.WaitGroup
	defer waits.Wait()
	defer cancel()
	for _, key := range []string{"42", "43"} {
		require.NoError(t, holder.lock(key), "another program")
		waits.Go(func() { _, _ = l.Acquire(ctx, key) })
	}
	for deadline := suite.Soon(t); !granted("SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid " +
		"WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND a.datname = current_database() AND a.pid <> pg_backend_pid())"); time.Sleep(time.Millisecond) {
		require.NoError(t, deadline.Err(), "the waiter shows itself")
	}
	if !granted("SELECT pg_try_advisory_lock(0, 42)") {
		t.Error("to wait for 42 blocks another program's (0, 42)")
	}
	dialer.Arm(0, 0, nil)
	time.Sleep(time.Second)
	if n := dialer.Writes(); n > 20 {
		t.Errorf("two waiters sent %d messages in a second", n)
	}
}

// program is another program's connection.
type program struct {
	kind devdb.Kind
	conn *sql.Conn
}

func (s *env) program(t *testing.T) *program {
	t.Helper()
	conn, err := suite.Connect(t, s.e.Kind, s.dsn).Conn(t.Context())
	require.NoError(t, err, "connect")
	t.Cleanup(func() { _ = conn.Close() })
	return &program{s.e.Kind, conn}
}

func (p *program) try(t *testing.T, key string) (ok bool) {
	t.Helper()
	query := "SELECT GET_LOCK('" + key + "', 0)"
	if p.kind == devdb.Postgres {
		query = "SELECT pg_try_advisory_lock(" + key + ")"
	}
	require.NoError(t, p.conn.QueryRowContext(t.Context(), query).Scan(&ok), query)
	return ok
}

func (p *program) lock(key string) error {
	query := "SELECT GET_LOCK('" + key + "', 5)"
	if p.kind == devdb.Postgres {
		query = "SELECT pg_advisory_lock(" + key + ") IS NOT NULL"
	}
	var ok bool
	err := p.conn.QueryRowContext(context.Background(), query).Scan(&ok)
	if err == nil && !ok {
		err = errors.New("another program is refused " + key)
	}
	return err
}

// free gives all locks of the program back.
func (p *program) free(t *testing.T) {
	t.Helper()
	query := "DO RELEASE_ALL_LOCKS()"
	if p.kind == devdb.Postgres {
		query = "SELECT pg_advisory_unlock_all()"
	}
	_, err := p.conn.ExecContext(t.Context(), query)
	require.NoError(t, err, query)
}
