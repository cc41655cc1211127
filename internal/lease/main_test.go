package lease_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/memlease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 9 * time.Second

// bubble runs f with a server in memory, on a clock of its own.
func bubble(t *testing.T, f func(t *testing.T, s *memlease.Server)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, memlease.NewServer(clock.Real{})) })
}

// process has Lockers that share what those of one process do, and counts what it asks the server.
type process struct {
	driver *memlease.Driver
	shares lease.Shares[int, *memlease.Driver]
	open   int  // Lockers
	silent bool // the server does not answer them when they close

	mu    sync.Mutex
	calls map[string]int
}

func newProcess(s *memlease.Server) *process {
	p := &process{driver: s.Open(), calls: make(map[string]int)}
	p.disturb(func(_ context.Context, _ string, run func() error) error { return run() })
	return p
}

// disturb has around run around each call from now on, beside the counting.
func (p *process) disturb(around memlease.Around) {
	p.driver.Disturb(func(ctx context.Context, call string, run func() error) error {
		p.mu.Lock()
		p.calls[call]++
		p.mu.Unlock()
		return around(ctx, call, run)
	})
}

// backendOf is the backend of d with the methods of in between.
func backendOf(d *memlease.Driver, between lease.Driver) lease.Backend {
	b := d.Backend()
	b.Driver = between
	return b
}

// called returns how often the server was asked since the last time.
func (p *process) called() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = make(map[string]int)
	return calls
}

// enter adds one more user of what the process shares.
func (p *process) enter(t *testing.T) *lease.Share[*memlease.Driver] {
	t.Helper()
	m, err := member.Options{TTL: ttl}.WithDefaults("Options")
	if err != nil {
		t.Fatal(err)
	}
	share, err := p.shares.Open(0, m, func() (*memlease.Driver, lease.Backend, error) { return p.driver, p.driver.Backend(), nil })
	if err != nil {
		t.Fatal(err)
	}
	return share
}

// locker makes one more Locker, which ends with the test.
func (p *process) locker(t *testing.T, o lease.Options) *lease.Locker {
	t.Helper()
	o, err := o.WithDefaults("Options", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	share := p.enter(t)
	l, leave := lease.New(share, o), p.shares.Leaver(0)
	p.open++
	t.Cleanup(func() {
		p.open--
		if err := errors.Join(l.Close(context.Background()), leave(context.Background())); err != nil {
			t.Error(err)
		}
		if n := lease.Known(share); n > 0 && p.open == 0 && !p.silent {
			t.Errorf("%d handles are known still", n)
		}
	})
	return l
}

const key = "k"

func acquire(t *testing.T, l *lease.Locker) *dblock.Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func release(t *testing.T, lock *dblock.Lock) {
	t.Helper()
	if err := lock.Release(context.Background()); err != nil {
		t.Error(err)
	}
}

// queue has callers that want the key, each with a name, and notes how they are served.
type queue struct {
	all sync.WaitGroup

	mu     sync.Mutex
	served []string
}

// join starts a caller that keeps the key for a while, and returns when it is queued.
func (q *queue) join(t *testing.T, l *lease.Locker, name string, while time.Duration) {
	q.all.Go(func() {
		lock, err := l.Acquire(t.Context(), key)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		q.mu.Lock()
		q.served = append(q.served, name)
		q.mu.Unlock()
		time.Sleep(while)
		release(t, lock)
	})
	synctest.Wait()
}

// isFree fails unless the key is free.
func isFree(t *testing.T, l *lease.Locker) {
	t.Helper()
	held, err := l.List(t.Context())
	if err != nil || len(held) != 0 {
		t.Errorf("held: %+v, %v", held, err)
	}
}

// handOff is a clock that calls a function once a release has handed the lock over, before its next
// holder has it.
type handOff struct {
	clock.Real
	armed atomic.Bool
	then  func()
}

// Now is also what a release asks for how long the lock was held.
func (c *handOff) Now() time.Time {
	if c.armed.CompareAndSwap(true, false) {
		c.then()
	}
	return c.Real.Now()
}

// onceHandedOver makes a clock for a Locker of p that calls then in its first hand-over.
func (p *process) onceHandedOver(then func()) clock.Clock {
	c := &handOff{then: then}
	first := true
	p.disturb(func(_ context.Context, call string, run func() error) error {
		err := run()
		if call == "HandOver" && first {
			first = false
			c.armed.Store(true)
		}
		return err
	})
	return c
}
