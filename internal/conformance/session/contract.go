package session

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

func (tests) SessionsExclude(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{}), s.process(t, SessionOptions{})
	other := s.process(t, SessionOptions{Namespace: "another"})
	first := suite.Acquire(t, a, "k", dblock.WithLabel("nightly run"))
	for label, l := range map[string]dblock.Locker{"another session": b, "nightly run": a} {
		held := suite.IsTaken(t, l, "k")
		assert.Equal(t, label, held.Holder.Label)
		assert.Zero(t, held.Holder.Token)
		assert.Nil(t, held.Wait)
	}
	_, fenced := first.Fence()
	assert.False(t, fenced, "it has a token")
	assert.Empty(t, first.Fences())
	assert.WithinRange(t, first.ValidUntil(), time.Now(), time.Now().Add(time.Minute))
	apart, elsewhere := suite.Acquire(t, b, "another key"), suite.Acquire(t, other, "k")
	for range 2 {
		suite.Release(t, first)
	}
	assert.Error(t, first.Context().Err(), "a released lock's context")
	assert.NotErrorIs(t, context.Cause(first.Context()), dblock.ErrLost)
	second := suite.Must(b.TryAcquire(t.Context(), "k"))(t)
	for _, lock := range []*dblock.Lock{second, apart, elsewhere} {
		suite.Release(t, lock)
	}
}

func (tests) RefusesWhatItLacks(t *testing.T, s *env) {
	l := s.process(t, SessionOptions{})
	caps := l.Caps()
	assert.NotEmpty(t, caps.NotDurable)
	caps.NotDurable, caps.TrustedFor = "", 0
	assert.Equal(t, dblock.Caps{Shared: s.Postgres()}, caps)
	lacks := map[string]dblock.Option{
		"permits": dblock.WithPermits(1, 2), "an end": dblock.WithMaxHold(time.Second), "another end": dblock.WithoutRenewal(time.Second),
		"data": dblock.WithData([]byte("x")),
	}
	if !s.Postgres() {
		lacks["readers"] = dblock.WithShared()
	}
	for name, o := range lacks {
		_, err := l.Acquire(t.Context(), "k", o)
		_, tried := l.TryAcquire(t.Context(), "k", o)
		for _, err := range []error{err, tried} {
			assert.ErrorIs(t, err, dblock.ErrUnsupported, name)
			assert.ErrorContains(t, err, "NewLeaseLocker", name)
		}
	}
	lock := suite.Acquire(t, l, "k")
	assert.ErrorIs(t, lock.ExpireIn(t.Context(), time.Second), dblock.ErrUnsupported)
	suite.Release(t, lock)
	assert.True(t, s.process(t, SessionOptions{ServerQueue: true}).Caps().Fair, "the server's queue")
}

func (tests) RefusesBadOptions(t *testing.T, s *env) {
	bad := map[string]SessionOptions{
		"IdleTimeout": {IdleTimeout: 999 * time.Millisecond}, "IdleTimeout, 2": {IdleTimeout: 25 * time.Hour}, "MaxConns": {MaxConns: -1},
		"MaxConns, 2": {MaxConns: 1001}, "Poll": {Poll: time.Millisecond}, "Poll, 2": {Poll: 2 * time.Minute}, "Namespace": {Namespace: "a\x00b"},
		"Namespace, 2": {Namespace: strings.Repeat("n", 256)}, "Namespace, 3": {Namespace: "n", Raw: true}, "Schema": {Schema: "a\x00"},
	}
	if s.Postgres() {
		bad["Label"] = SessionOptions{Label: "\xff"}
	} else {
		bad["IdleTimeout, 3"] = SessionOptions{IdleTimeout: 1500 * time.Millisecond}
	}
	for name, o := range bad {
		field, _, _ := strings.Cut(name, ",")
		_, _, err := s.e.Open(t.Context(), s.DSN, nil, o)
		assert.ErrorIs(t, err, dblock.ErrInvalid, name)
		assert.Equal(t, "SessionOptions."+field, suite.As[*dblock.InvalidError](t, err).Field, name)
	}
}

func (tests) RefusesBadKeys(t *testing.T, s *env) {
	l := s.process(t, SessionOptions{Raw: true})
	good := []string{"42", "-1", "9223372036854775807"}
	bad := []string{"abc", "", "1.5", "9223372036854775808", " 1"}
	if !s.Postgres() {
		good = []string{"abc", "A name", strings.Repeat("n", 64)}
		bad = []string{"a'b", `a"b`, `a\b`, "", strings.Repeat("n", 65), "ä", "a\nb", "a\x00b", "a`b'"}
	}
	for _, key := range good {
		suite.IsFree(t, l, key)
	}
	for _, key := range bad {
		_, err := l.TryAcquire(t.Context(), key)
		assert.Equal(t, "key", suite.As[*dblock.InvalidError](t, err).Field, "%q", key)
	}
}

// RawKeysAreTheServers: what a raw key excludes is what the server excludes for two other programs.
func (tests) RawKeysAreTheServers(t *testing.T, s *env) {
	one, two := s.program(t), s.program(t)
	l := s.process(t, SessionOptions{Raw: true})
	pairs := [][2]string{{"42", "42"}, {"42", "-42"}, {"42", "4294967338"}}
	if !s.Postgres() {
		pairs = [][2]string{
			{"Nightly", "Nightly"}, {"Nightly", "nightly"}, {"nightly", "NIGHTLY"}, {"a", "a "}, {" a", "a"}, {"a_b", "a-b"},
			{strings.Repeat("Nr", 32), strings.Repeat("Nr", 32)}, {strings.Repeat("Nr", 32), strings.Repeat("nr", 32)},
		}
	}
	for _, p := range pairs {
		require.True(t, one.try(t, p[0]))
		excluded := !two.try(t, p[1])
		two.free(t)
		lock, err := l.TryAcquire(t.Context(), p[1])
		assert.Equal(t, excluded, errors.Is(err, dblock.ErrNotAcquired), "another program holds %q, dblock tries %q: %v", p[0], p[1], err)
		one.free(t)
		if err == nil {
			suite.Release(t, lock)
		}
		lock = suite.Acquire(t, l, p[0])
		assert.Equal(t, excluded, !two.try(t, p[1]), "dblock holds %q, another program tries %q", p[0], p[1])
		two.free(t)
		suite.Release(t, lock)
	}
}

// program is another program's connection.
type program struct {
	s    *env
	conn *sql.Conn
}

func (s *env) program(t *testing.T) *program {
	t.Helper()
	conn := suite.Must(s.Conn(t.Context()))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return &program{s, conn}
}

func (p *program) ask(t *testing.T, query string) (ok bool) {
	t.Helper()
	require.NoError(t, p.conn.QueryRowContext(t.Context(), query).Scan(&ok), query)
	return ok
}

func (p *program) try(t *testing.T, key string) (ok bool) {
	t.Helper()
	if p.s.Postgres() {
		return p.ask(t, "SELECT pg_try_advisory_lock("+key+")")
	}
	return p.ask(t, "SELECT GET_LOCK('"+key+"', 0)")
}

// free releases all locks of the program.
func (p *program) free(t *testing.T) {
	t.Helper()
	query := "DO RELEASE_ALL_LOCKS()"
	if p.s.Postgres() {
		query = "SELECT pg_advisory_unlock_all()"
	}
	require.NoError(t, suite.Second(p.conn.ExecContext(t.Context(), query)))
}

func (tests) TellsTheObserver(t *testing.T, s *env) {
	observer, observed := suite.Observe()
	l := s.process(t, SessionOptions{IdleTimeout: 9 * time.Second, Observer: observer})
	lock := suite.Acquire(t, l, "k")
	suite.IsTaken(t, l, "k")
	suite.Release(t, lock)
	killed := suite.Acquire(t, l, "killed")
	s.endHolder(t, "killed")
	suite.IsLost(t, killed, dblock.ReasonDisconnected)
	observed(t, "acquired k, not acquired k: true, released k, acquired killed, lost killed: "+string(dblock.ReasonDisconnected))
}

func (tests) CloseGivesBack(t *testing.T, s *env) { s.closeGivesBack(t, SessionOptions{}) }

func (tests) CloseInLine(t *testing.T, s *env) { s.closeGivesBack(t, atServer) }

func (s *env) closeGivesBack(t *testing.T, o SessionOptions) {
	a, b := s.process(t, o), s.process(t, o)
	lock, blocker := suite.Acquire(t, a, "mine"), suite.Acquire(t, b, "k")
	waits := waiting(context.Background(), a, "k")
	s.untilWaiters(t, "k", 1)
	closed := suite.Begin(func() (any, error) { return nil, a.Close(context.Background()) })
	suite.IsLost(t, lock, dblock.ReasonClosed)
	assert.NoError(t, suite.Second(closed()))
	assert.ErrorIs(t, waits(), dblock.ErrClosed, "a call that waited")
	assert.ErrorIs(t, suite.Second(a.TryAcquire(t.Context(), "mine")), dblock.ErrClosed)
	suite.IsFree(t, b, "mine")
	suite.Release(t, blocker)

	gone := s.process(t, o)
	kept := suite.Acquire(t, gone, "kept")
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, gone.Close(dead), context.Canceled, "with a lock in use and no time")
	suite.IsFree(t, b, "kept")
	assert.ErrorIs(t, kept.Release(t.Context()), dblock.ErrLost)
}

// CostsFewRoundTrips counts what calls send.
func (tests) CostsFewRoundTrips(t *testing.T, s *env) {
	var dialer faultconn.Dialer
	l := s.processOn(t, &dialer, SessionOptions{IdleTimeout: time.Hour})
	other := s.process(t, SessionOptions{})
	for range 2 { // statements are prepared
		suite.IsFree(t, l, "k")
		suite.IsFree(t, other, "k")
	}
	least, trips := suite.LeastTrips(&dialer)
	want := map[string]int{"take": 1, "give back": 1, "refused": 1, "refused here": 0}
	for range 5 { // something may go on beside it, once or twice
		var lock, second *dblock.Lock
		trips("take", func() { lock = suite.Acquire(t, l, "k") })
		trips("refused here", func() { suite.IsTaken(t, l, "k") })
		trips("give back", func() { suite.Release(t, lock) })
		lock = suite.Acquire(t, other, "k")
		trips("refused", func() { suite.IsTaken(t, l, "k") })
		suite.Release(t, lock)
		if s.Postgres() {
			want["read"], want["read beside"], want["go before the last"], want["go"] = 1, 1, 1, 1
			trips("read", func() { lock = suite.Acquire(t, l, "k", dblock.WithShared()) })
			trips("read beside", func() { second = suite.Acquire(t, l, "k", dblock.WithShared()) })
			trips("go before the last", func() { suite.Release(t, lock) })
			trips("go", func() { suite.Release(t, second) })
		}
	}
	assert.Equal(t, want, least)
}
