package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

func sessionsExclude(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{}), s.process(t, SessionOptions{})
	other := s.process(t, SessionOptions{Namespace: "another"})
	first := suite.Acquire(t, a, "k", dblock.WithLabel("nightly run"))
	for name, l := range map[string]dblock.Locker{"another session": b, "nightly run": a} {
		_, err := l.TryAcquire(t.Context(), "k")
		if held := suite.IsHeld(t, err, "k"); held.Holder.Label != name || held.Holder.Token != 0 || held.Wait != nil {
			t.Errorf("told that it is held by %+v", held)
		}
	}
	if _, fenced := first.Fence(); fenced || len(first.Fences()) > 0 {
		t.Error("it has a token")
	}
	if until := time.Until(first.ValidUntil()); until <= 0 || until > time.Minute {
		t.Errorf("valid for %v", until)
	}
	apart, elsewhere := suite.Acquire(t, b, "another key"), suite.Acquire(t, other, "k")
	for range 2 {
		suite.Release(t, first)
	}
	if first.Context().Err() == nil || errors.Is(context.Cause(first.Context()), dblock.ErrLost) {
		t.Errorf("a released lock's context: %v", context.Cause(first.Context()))
	}
	second, err := b.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	for _, lock := range []*dblock.Lock{second, apart, elsewhere} {
		suite.Release(t, lock)
	}
}

func sessionRefusesWhatItLacks(t *testing.T, s *env) {
	l := s.process(t, SessionOptions{})
	lacks := map[string]dblock.Option{
		"permits": dblock.WithPermits(1, 2), "an end": dblock.WithMaxHold(time.Second), "another end": dblock.WithoutRenewal(time.Second),
		"data": dblock.WithData([]byte("x")),
	}
	caps := l.Caps()
	if s.e.Kind != devdb.Postgres {
		lacks["readers"] = dblock.WithShared()
	}
	if caps.Shared != (s.e.Kind == devdb.Postgres) || caps.Fencing || caps.Permits || caps.Fair || caps.MaxHold || caps.SurvivesConnectionLoss ||
		caps.PoolerSafe || caps.Durable || caps.NotDurable == "" {
		t.Errorf("it can do %+v", caps)
	}
	for name, o := range lacks {
		_, err := l.Acquire(t.Context(), "k", o)
		_, tried := l.TryAcquire(t.Context(), "k", o)
		for _, err := range []error{err, tried} {
			if !errors.Is(err, dblock.ErrUnsupported) || !strings.Contains(err.Error(), "NewLease") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	lock := suite.Acquire(t, l, "k")
	if err := lock.ExpireIn(t.Context(), time.Second); !errors.Is(err, dblock.ErrUnsupported) {
		t.Errorf("ExpireIn: %v", err)
	}
	suite.Release(t, lock)
	if !s.process(t, SessionOptions{ServerQueue: true}).Caps().Fair {
		t.Error("the server's line is not fair")
	}
}

func sessionRefusesBadOptions(t *testing.T, s *env) {
	bad := map[string]SessionOptions{
		"IdleTimeout": {IdleTimeout: 999 * time.Millisecond}, "IdleTimeout, 2": {IdleTimeout: 25 * time.Hour}, "MaxConns": {MaxConns: -1},
		"MaxConns, 2": {MaxConns: 1001}, "Poll": {Poll: time.Millisecond}, "Poll, 2": {Poll: 2 * time.Minute}, "Namespace": {Namespace: "a\x00b"},
		"Namespace, 2": {Namespace: strings.Repeat("n", 256)}, "Namespace, 3": {Namespace: "n", Raw: true}, "Schema": {Schema: "a\x00"},
	}
	if s.e.Kind == devdb.Postgres {
		bad["Label"] = SessionOptions{Label: "\xff"}
	} else {
		bad["IdleTimeout, 3"] = SessionOptions{IdleTimeout: 1500 * time.Millisecond}
	}
	for name, o := range bad {
		field, _, _ := strings.Cut(name, ",")
		var invalid *dblock.InvalidError
		_, closePool, err := s.e.Open(t.Context(), s.dsn, nil, o)
		if err == nil {
			closePool()
		}
		if !errors.As(err, &invalid) || !errors.Is(err, dblock.ErrInvalid) || invalid.Field != "SessionOptions."+field {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// sessionRefusesBadKeys is about keys that are the server's own.
func sessionRefusesBadKeys(t *testing.T, s *env) {
	l := s.process(t, SessionOptions{Raw: true})
	good := []string{"42", "-1", "9223372036854775807"}
	bad := []string{"abc", "", "1.5", "9223372036854775808", " 1"}
	if s.e.Kind != devdb.Postgres {
		good = []string{"abc", "A name", strings.Repeat("n", 64)}
		bad = []string{"a'b", `a"b`, `a\b`, "", strings.Repeat("n", 65), "ä", "a\nb", "a\x00b", "a`b'"}
	}
	for _, key := range good {
		suite.Release(t, suite.Acquire(t, l, key))
	}
	for _, key := range bad {
		var invalid *dblock.InvalidError
		if _, err := l.TryAcquire(t.Context(), key); !errors.As(err, &invalid) || invalid.Field != "key" {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func sessionTellsTheObserver(t *testing.T, s *env) {
	var mu sync.Mutex
	var told []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprintf(format, args...))
	}
	l := s.process(t, SessionOptions{IdleTimeout: 3 * time.Second, Observer: dblock.Observer{
		Acquired: func(key string, _ time.Duration) { note("acquired %s", key) },
		NotAcquired: func(key string, _ time.Duration, err error) {
			note("not acquired %s: %v", key, errors.Is(err, dblock.ErrNotAcquired))
		},
		Released: func(key string, _ time.Duration) { note("released %s", key) },
		Lost:     func(key string, _ time.Duration, why dblock.Reason) { note("lost %s: %s", key, why) },
	}})
	lock := suite.Acquire(t, l, "k")
	_, _ = l.TryAcquire(t.Context(), "k")
	suite.Release(t, lock)
	killed := suite.Acquire(t, l, "killed")
	if err := s.end(t.Context(), s.holder(t, "killed"), false); err != nil {
		t.Fatal(err)
	}
	suite.IsLost(t, killed, dblock.Disconnected)
	want := "acquired k, not acquired k: true, released k, acquired killed, lost killed: " + string(dblock.Disconnected)
	sofar := func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(told, ", ")
	}
	for ctx := suite.Soon(t); sofar() != want; time.Sleep(time.Millisecond) { // the Observer is called after the holder
		if ctx.Err() != nil {
			t.Fatalf("told %s\nwant %s", sofar(), want)
		}
	}
}

func sessionCloseGivesBack(t *testing.T, s *env) { s.closeGivesBack(t, SessionOptions{}) }

func sessionCloseInLine(t *testing.T, s *env) {
	s.closeGivesBack(t, SessionOptions{ServerQueue: true, MaxConns: mostInLine})
}

func (s *env) closeGivesBack(t *testing.T, o SessionOptions) {
	a, b := s.process(t, o), s.process(t, o)
	lock, blocker := suite.Acquire(t, a, "mine"), suite.Acquire(t, b, "k")
	waits := make(chan error, 1)
	go func() {
		_, err := a.Acquire(context.Background(), "k")
		waits <- err
	}()
	s.someoneWaits(t, "k")
	closed := make(chan error, 1)
	go func() { closed <- a.Close(context.Background()) }()
	suite.IsLost(t, lock, dblock.Closed)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := <-waits; !errors.Is(err, dblock.ErrClosed) {
		t.Errorf("a call that waited: %v", err)
	}
	if _, err := a.TryAcquire(t.Context(), "mine"); !errors.Is(err, dblock.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	suite.Release(t, suite.Acquire(t, b, "mine"))
	suite.Release(t, blocker)
	gone := s.process(t, o)
	kept := suite.Acquire(t, gone, "kept")
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	if err := gone.Close(dead); !errors.Is(err, context.Canceled) {
		t.Errorf("Close with a lock in use and no time: %v", err)
	}
	suite.Release(t, suite.Acquire(t, b, "kept"))
	if err := kept.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
		t.Errorf("release after Close: %v", err)
	}
}

// someoneWaits waits until a call waits for a key that another process has.
func (s *env) someoneWaits(t *testing.T, key string) {
	t.Helper()
	for ctx := suite.Soon(t); s.waiters(t, key) == 0; {
		if ctx.Err() != nil {
			t.Fatal("nobody waits")
		}
	}
}

// aLeaverIsNoTrouble has a call give up that waited first in line: who stood behind it gets the lock, and hears of it.
func aLeaverIsNoTrouble(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{}), s.process(t, SessionOptions{Poll: time.Minute})
	lock := suite.Acquire(t, a, "k")
	ctx, giveUp := context.WithCancel(suite.Soon(t))
	gone := make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx, "k")
		gone <- err
	}()
	s.someoneWaits(t, "k")
	got := make(chan *dblock.Lock, 1)
	go func() { got <- suite.Acquire(t, b, "k") }()
	giveUp()
	suite.IsHeld(t, <-gone, "k")
	s.someoneWaits(t, "k")
	began := time.Now()
	suite.Release(t, lock)
	suite.Release(t, <-got)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it heard of the release after %v", took)
	}
}

// triesAfterARelease: what was given back can be had at once, whatever the process has to tidy up after a wait.
func triesAfterARelease(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{}), s.process(t, SessionOptions{})
	for n := range 20 {
		first := suite.Acquire(t, a, "k")
		got := make(chan *dblock.Lock, 1)
		go func() { got <- suite.Acquire(t, b, "k") }()
		s.someoneWaits(t, "k")
		suite.Release(t, first)
		suite.Release(t, <-got)
		again, err := b.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatalf("round %d: released, and then %v", n, err)
		}
		suite.Release(t, again)
	}
}
