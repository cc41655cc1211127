package session_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server has locks as a database has them, exclusive ones only, and marks of the waiters.
type server struct {
	mu    sync.Mutex
	locks map[session.ID]*conn
	marks map[session.ID][]*conn
	conns []*conn
	most  int
	open  func(context.Context) error // nil: a connection opens at once

	struck atomic.Pointer[strike]
}

// strike is called before a statement runs. Where it returns an error the statement has run if done
// says so.
type strike func(c *conn, steps []session.Step) (done bool, err error)

func (s *server) strike(f strike) { s.struck.Store(&f) }

var (
	errGone = errors.New("the connection is gone")
	errOdd  = errors.New("the server has answered with an error")
)

func newServer() *server {
	return &server{locks: map[session.ID]*conn{}, marks: map[session.ID][]*conn{}, most: 100}
}

// process is a Driver: one process on the server.
type process struct{ *server }

func (process) ID(key string) (session.ID, error) { return session.ID(key), nil }

func (p process) MaxLocks() int { return p.most }

func (process) Note(context.Context, map[session.ID]string) error { return nil }

func (process) Classify(err error) sqlerr.Class {
	if errors.Is(err, errGone) {
		return sqlerr.Unresolved
	}
	return sqlerr.Busy
}

func (p process) Open(ctx context.Context, heard func(session.ID)) (session.Conn, error) {
	if p.open != nil {
		if err := p.open(ctx); err != nil {
			return nil, err
		}
	}
	c := &conn{s: p.server, heard: heard, gone: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, c)
	return c, nil
}

// conn is a connection. Statements on it take a millisecond.
type conn struct {
	s     *server
	heard func(session.ID)
	once  sync.Once
	gone  chan struct{}
}

const roundTrip = time.Millisecond

func (c *conn) Run(ctx context.Context, steps []session.Step) ([]bool, error) {
	time.Sleep(roundTrip)
	if c.Closed() {
		return nil, errGone
	}
	if f := c.s.struck.Load(); f != nil {
		if done, err := (*f)(c, steps); err != nil {
			if done {
				_, _ = c.do(steps)
			}
			return nil, err
		}
	}
	done, tell := c.do(steps)
	for _, f := range tell {
		f()
	}
	if c.Closed() {
		return nil, errGone
	}
	return done, nil
}

func (c *conn) do(steps []session.Step) (done []bool, tell []func()) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, step := range steps {
		ok, has := false, c.s.locks[step.ID]
		others := slices.DeleteFunc(slices.Clone(c.s.marks[step.ID]), func(o *conn) bool { return o == c })
		switch step.Op {
		case session.Take:
			if ok = has == nil; ok {
				c.s.locks[step.ID] = c
			}
		case session.Free, session.Drop:
			if ok = has == c; ok {
				delete(c.s.locks, step.ID)
			}
			for _, o := range others {
				if step.Op == session.Free && ok {
					tell = append(tell, func() { go o.heard(step.ID) })
				}
			}
		case session.Show:
			ok = true
			c.s.marks[step.ID] = append(others, c)
		case session.Hide:
			c.s.marks[step.ID] = others
		case session.HasWaiters:
			ok = len(others) > 0
		}
		done = append(done, ok)
	}
	return done, tell
}

func (c *conn) Has(_ context.Context, steps []session.Step) (has []bool, err error) {
	time.Sleep(roundTrip)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, step := range steps {
		if step.Op == session.Show || step.Op == session.Hide {
			has = append(has, slices.Contains(c.s.marks[step.ID], c))
		} else {
			has = append(has, c.s.locks[step.ID] == c)
		}
	}
	return has, nil
}

func (c *conn) Ping(context.Context) error {
	time.Sleep(roundTrip)
	if c.Closed() {
		return errGone
	}
	return nil
}

func (c *conn) Park(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.gone:
		return errGone
	}
}

func (c *conn) Wait(context.Context, session.ID, bool) error { return dblock.ErrUnsupported }

func (c *conn) Closed() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

func (c *conn) Close() {
	c.once.Do(func() {
		close(c.gone)
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		for id, has := range c.s.locks {
			if has == c {
				delete(c.s.locks, id)
			}
		}
		for id := range c.s.marks {
			c.s.marks[id] = slices.DeleteFunc(c.s.marks[id], func(o *conn) bool { return o == c })
		}
	})
}

// left is how many locks and marks the server has.
func (s *server) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.locks)
	for _, marks := range s.marks {
		n += len(marks)
	}
	return n
}

// locker is a process of its own.
func (s *server) locker(t *testing.T, o session.Options) *session.Locker {
	t.Helper()
	o.Notifies = true
	o, err := o.WithDefaults("Options", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	l, err := session.New(t.Context(), process{s}, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// run runs a test on a server, in a world in which time passes when all goroutines are idle. In the
// end nothing may be left.
func run(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		test(t, s)
		time.Sleep(time.Minute) // what is done in the background is done
		if n := s.left(); n > 0 {
			t.Errorf("%d locks and marks are left: %v, %v", n, s.locks, s.marks)
		}
	})
}

func closes(t *testing.T, ls ...*session.Locker) {
	t.Helper()
	for _, l := range ls {
		if err := l.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func acquire(t *testing.T, l *session.Locker, key string) *dblock.Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), key)
	if err != nil {
		t.Fatalf("acquire %q: %v", key, err)
	}
	return lock
}

func release(t *testing.T, lock *dblock.Lock) {
	t.Helper()
	if err := lock.Release(t.Context()); err != nil {
		t.Errorf("release of %q: %v", lock.Key(), err)
	}
}

// holder is the holder of a lock; nil: it is free.
func (s *server) holder(id session.ID) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.locks[id]
}
