package dblocktest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

const ttl = 9 * time.Second

// processes are Lockers of one server, on a clock that the test moves.
func processes(t *testing.T, n int, o LeaseOptions) (*Server, *Clock, []*LeaseLocker) {
	t.Helper()
	t.Parallel()
	c := NewClock(start)
	s := NewServer(c)
	var all []*LeaseLocker
	o.TTL = ttl
	for range n {
		l, err := s.NewLeaseLocker(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ended, cancel := context.WithCancel(context.Background())
			cancel() // some tests leave locks behind
			_ = l.Close(ended)
		})
		all = append(all, l)
	}
	return s, c, all
}

func acquire(t *testing.T, l *LeaseLocker, opts ...dblock.Option) *dblock.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lock, err := l.Acquire(ctx, "k", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func fence(t *testing.T, lock *dblock.Lock) dblock.Fence {
	t.Helper()
	f, ok := lock.Fence()
	if !ok {
		t.Fatal("no fence")
	}
	return f
}

// isLost fails unless the lock is lost by now; with no reason, unless it is not.
func isLost(t *testing.T, lock *dblock.Lock, want dblock.Reason) {
	t.Helper()
	var got dblock.Reason
	var lost *dblock.LostError
	if errors.As(context.Cause(lock.Context()), &lost) {
		got = lost.Reason
	}
	if got != want || want == "" && lock.Context().Err() != nil {
		t.Errorf("the lock ended by %v, want: %q", context.Cause(lock.Context()), want)
	}
}

func isFenced(t *testing.T, s *Server, lock *dblock.Lock, want bool) {
	t.Helper()
	if err := s.Check(fence(t, lock)); errors.Is(err, dblock.ErrFenced) != want || !want && err != nil {
		t.Errorf("checked: %v, want it fenced off: %v", err, want)
	}
}

func TestHeartbeatsAreSentOnTheWay(t *testing.T) {
	s, c, l := processes(t, 2, LeaseOptions{})
	lock := acquire(t, l[0])
	c.Advance(time.Hour)
	isLost(t, lock, "")
	isFenced(t, s, lock, false)
	if until := lock.ValidUntil(); until.Before(c.Now()) || until.After(c.Now().Add(ttl)) {
		t.Errorf("valid until %v, it is %v", until, c.Now())
	}
	if _, err := l[1].TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("another process got %v", err)
	}
}

func TestALockExpiresToTheNanosecond(t *testing.T) {
	s, c, l := processes(t, 2, LeaseOptions{Margin: time.Second})
	lock := acquire(t, l[0])
	l[0].StopHeartbeats()
	c.Advance(ttl - time.Second - 1)
	isLost(t, lock, "")
	c.Advance(1)
	isLost(t, lock, dblock.ReasonExpired)
	c.Advance(time.Second - 1)
	if _, err := l[1].TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("before the time is up: %v", err)
	}
	isFenced(t, s, lock, false)
	c.Advance(1)
	next := acquire(t, l[1])
	isFenced(t, s, lock, true)
	isFenced(t, s, next, false)
	l[0].ResumeHeartbeats()
	if err := lock.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
		t.Errorf("release: %v", err)
	}
	_ = next.Release(t.Context())
	again := acquire(t, l[0])
	c.Advance(time.Hour)
	isLost(t, again, "")
}

func TestLateHeartbeatsAreHarmlessWithinTheTTL(t *testing.T) {
	late := make(chan struct{})
	var once sync.Once
	_, c, l := processes(t, 1, LeaseOptions{Observer: dblock.Observer{HeartbeatLate: func(time.Duration, error) { once.Do(func() { close(late) }) }}})
	lock := acquire(t, l[0])
	l[0].DelayHeartbeats(ttl * 2 / 3)
	c.Advance(time.Hour)
	isLost(t, lock, "")
	select {
	case <-late:
	case <-time.After(time.Minute):
		t.Error("no heartbeat was late")
	}
	l[0].DelayHeartbeats(ttl)
	c.Advance(ttl)
	isLost(t, lock, dblock.ReasonExpired)
}

func TestMaxHoldEndsByTheClock(t *testing.T) {
	_, c, l := processes(t, 2, LeaseOptions{})
	lock := acquire(t, l[0], dblock.WithMaxHold(time.Hour))
	const margin = ttl / 10
	c.Advance(time.Hour - margin - 1)
	isLost(t, lock, "")
	c.Advance(1)
	isLost(t, lock, dblock.ReasonTimeUp)
	c.Advance(margin)
	acquire(t, l[1])
}

// TestAWaiterGetsItOnceTheTimeIsUp: in whatever order Advance and the waiter run.
func TestAWaiterGetsItOnceTheTimeIsUp(t *testing.T) {
	_, c, l := processes(t, 2, LeaseOptions{})
	for range 200 {
		lock := acquire(t, l[0])
		got := make(chan *dblock.Lock)
		go func() { got <- acquire(t, l[1]) }()
		l[0].StopHeartbeats()
		c.Advance(ttl)
		isLost(t, lock, dblock.ReasonExpired)
		next := <-got
		l[0].ResumeHeartbeats()
		go func() { got <- acquire(t, l[0]) }()
		c.Advance(10 * time.Minute)
		_ = next.Release(t.Context())
		_ = (<-got).Release(t.Context())
	}
}

func TestLose(t *testing.T) {
	s, _, l := processes(t, 2, LeaseOptions{})
	lock := acquire(t, l[0])
	if l[0].Lose("another") || l[1].Lose("k") {
		t.Error("lost what is not held")
	}
	if !l[0].Lose("k") {
		t.Error("not lost")
	}
	isLost(t, lock, dblock.ReasonStolen)
	isFenced(t, s, lock, true)
	next := acquire(t, l[1])
	if err := lock.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
		t.Errorf("release: %v", err)
	}
	isFenced(t, s, next, false)
	if l[0].Lose("k") {
		t.Error("lost twice")
	}
}

func TestLoseEndsReentrantLocksToo(t *testing.T) {
	_, _, l := processes(t, 1, LeaseOptions{})
	lock := acquire(t, l[0])
	child, err := l[0].Acquire(lock.Context(), "k", dblock.WithReentrant())
	if err != nil {
		t.Fatal(err)
	}
	_ = lock.Release(t.Context())
	if !l[0].Lose("k") {
		t.Error("not lost")
	}
	isLost(t, child, dblock.ReasonStolen)
}

func TestEvict(t *testing.T) {
	s, _, l := processes(t, 2, LeaseOptions{})
	lock := acquire(t, l[0])
	lasting, err := l[0].Acquire(t.Context(), "lasting", dblock.WithoutRenewal(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	l[0].Evict()
	isLost(t, lock, dblock.ReasonEvicted)
	isLost(t, lasting, "")
	isFenced(t, s, lock, false) // no holder yet
	next := acquire(t, l[1])
	isFenced(t, s, lock, true)
	_ = next.Release(t.Context())
	isLost(t, acquire(t, l[0]), "") // it has joined again
}

// TestEvictAPausedProcess: the process goes on in good faith, and only the guard refuses it.
func TestEvictAPausedProcess(t *testing.T) {
	s, c, l := processes(t, 2, LeaseOptions{Margin: time.Second})
	lock := acquire(t, l[0])
	l[0].StopHeartbeats()
	l[0].Evict()
	next := acquire(t, l[1])
	isLost(t, lock, "")
	isFenced(t, s, lock, true)
	isFenced(t, s, next, false)
	c.Advance(ttl - time.Second)
	isLost(t, lock, dblock.ReasonExpired)
	isLost(t, next, "")
}

func TestFail(t *testing.T) {
	s, c, l := processes(t, 2, LeaseOptions{})
	for _, want := range []error{dblock.ErrUnavailable, dblock.ErrBusy, dblock.ErrConflict, errors.New("something else")} {
		ask := l[0].Acquire
		if want == dblock.ErrBusy || want == dblock.ErrConflict { // after which Acquire asks again
			ask = l[0].TryAcquire
		}
		l[0].Fail(want)
		if _, err := ask(t.Context(), "k"); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		lock, err := l[1].TryAcquire(t.Context(), "k") // nothing has happened
		if err != nil {
			t.Fatal(err)
		}
		_ = lock.Release(t.Context())
	}
	l[0].Fail(dblock.ErrOutcomeUnknown)
	l[0].Fail(dblock.ErrUnavailable)
	if _, err := l[0].TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
	if _, err := l[0].TryAcquire(t.Context(), "other"); !errors.Is(err, dblock.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if _, err := l[1].TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("after an unknown outcome another process got %v", err)
	}
	c.Advance(ttl / 3)
	lock, err := l[1].TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatalf("a heartbeat later: %v", err)
	}
	isFenced(t, s, lock, false)
}

// TestFailOfEachMode: Fail is for locks of each mode, and for sets. The error is of one class, and
// the next call gets the lock.
func TestFailOfEachMode(t *testing.T) {
	_, c, l := processes(t, 1, LeaseOptions{})
	classes := []error{
		dblock.ErrUnavailable, dblock.ErrOutcomeUnknown, dblock.ErrBusy, dblock.ErrOverloaded, dblock.ErrConflict, dblock.ErrSchema,
		dblock.ErrUnsupported, dblock.ErrClosed, dblock.ErrInvalid, dblock.ErrNotAcquired,
	}
	for name, try := range map[string]func() (*dblock.Lock, error){
		"exclusive":  func() (*dblock.Lock, error) { return l[0].TryAcquire(t.Context(), "k") },
		"shared":     func() (*dblock.Lock, error) { return l[0].TryAcquire(t.Context(), "s", dblock.WithShared()) },
		"permits":    func() (*dblock.Lock, error) { return l[0].TryAcquire(t.Context(), "p", dblock.WithPermits(2, 3)) },
		"a set":      func() (*dblock.Lock, error) { return l[0].TryAcquireAll(t.Context(), []string{"a", "b"}) },
		"the waiter": func() (*dblock.Lock, error) { return l[0].Acquire(t.Context(), "k") },
	} {
		for _, want := range classes {
			l[0].Fail(want)
			lock, err := try()
			if asksAgain := name == "the waiter" && (want == dblock.ErrBusy || want == dblock.ErrConflict); !asksAgain {
				if err == nil {
					t.Fatalf("%s: a lock, want %v", name, want)
				}
				for _, class := range classes {
					if errors.Is(err, class) != (class == want) {
						t.Errorf("%s: %v matches %v: %t", name, err, class, class != want)
					}
				}
				c.Advance(ttl / 3) // unresolved operations are reconciled
				lock, err = try()
			}
			if err != nil {
				t.Fatalf("%s: the call after %v: %v", name, want, err)
			}
			if err := lock.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for field, o := range map[string]LeaseOptions{
		"LeaseOptions.TTL": {TTL: time.Millisecond}, "LeaseOptions.Margin": {Margin: -1}, "LeaseOptions.Poll": {Poll: time.Hour},
		"LeaseOptions.Label": {Label: "\x00"},
	} {
		var invalid *dblock.InvalidError
		if _, err := NewServer(nil).NewLeaseLocker(o); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// witness is a test as New sees it.
type witness struct {
	testing.TB
	cleanup func()
	failed  bool
}

func (w *witness) Helper()               {}
func (w *witness) Cleanup(f func())      { w.cleanup = f }
func (w *witness) Errorf(string, ...any) { w.failed = true }

func TestNewClosesAndTellsWhatIsLeft(t *testing.T) {
	t.Parallel()
	for _, released := range []bool{true, false} {
		w := &witness{TB: t}
		l := New(w)
		lock := acquire(t, l)
		if released {
			_ = lock.Release(t.Context())
		}
		w.cleanup()
		if w.failed == released {
			t.Errorf("released %v, failed %v", released, w.failed)
		}
		if _, err := l.TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrClosed) {
			t.Errorf("after the test: %v", err)
		}
	}
}

// TestForceReleaseOfALockLeavesPermits: a lock and a semaphore of one name have different tokens,
// though both were granted while the clock stood still.
func TestForceReleaseOfALockLeavesPermits(t *testing.T) {
	_, _, of := processes(t, 1, LeaseOptions{})
	permits := acquire(t, of[0], dblock.WithPermits(1, 2))
	lock := acquire(t, of[0])
	if err := of[0].ForceRelease(t.Context(), "k", fence(t, lock).Token); err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
		t.Errorf("the lock: %v", err)
	}
	if err := permits.Release(t.Context()); err != nil {
		t.Errorf("the permits: %v", err)
	}
}
