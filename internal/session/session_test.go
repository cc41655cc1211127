package session_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
)

// idle is longer than any of these tests lets a server be slow.
var idle = session.Options{IdleTimeout: time.Hour}

// TestAReleaseOutlivesItsWait has a release wait behind a statement for longer than it may: it
// returns in time and says that it is unconfirmed. It is carried out all the same.
func TestAReleaseOutlivesItsWait(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		l := s.locker(t, idle)
		lock := acquire(t, l, "k")
		s.strike(func(_ *conn, steps []session.Step) (bool, error) {
			if steps[0].ID == "slow" {
				time.Sleep(30 * time.Second)
			}
			return false, nil
		})
		go release(t, acquire(t, l, "fast"))
		time.Sleep(time.Second)
		go func() { _ = acquire(t, l, "slow").Release(t.Context()) }()
		time.Sleep(time.Second)
		began := time.Now()
		isUnconfirmed(t, lock.Release(t.Context()))
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Minute)
		if n := s.left(); n > 0 { // while the connection lives
			t.Errorf("%d locks are left", n)
		}
		closes(t, l)
	})
}

// TestLeavesWhileGranted has a caller give up while its statement is under way: the next caller
// gets the lock, or it is free.
func TestLeavesWhileGranted(t *testing.T) {
	for _, next := range []bool{false, true} {
		t.Run(map[bool]string{false: "nobody", true: "somebody"}[next], func(t *testing.T) {
			run(t, func(t *testing.T, s *server) {
				var released int
				l := s.locker(t, session.Options{Observer: dblock.Observer{Released: func(string, time.Duration) { released++ }}})
				ctx, cancel := context.WithTimeout(t.Context(), roundTrip/2)
				defer cancel()
				var waits sync.WaitGroup
				if next {
					waits.Go(func() {
						time.Sleep(roundTrip / 4)
						release(t, acquire(t, l, "k"))
					})
				}
				if _, err := l.Acquire(ctx, "k"); !errors.Is(err, dblock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				waits.Wait()
				time.Sleep(10 * roundTrip)
				if n := s.left(); n > 0 {
					t.Errorf("%d locks are left", n)
				}
				if want := map[bool]int{false: 0, true: 1}[next]; released != want {
					t.Errorf("%d releases were told, want %d: nobody has heard of the other grant", released, want)
				}
				closes(t, l)
			})
		})
	}
}

// endsWhenAsked is a context that ends when it is asked for a value.
type endsWhenAsked struct {
	context.Context
	end   context.CancelFunc
	armed atomic.Bool
}

func (c *endsWhenAsked) Value(key any) any {
	if c.armed.Load() {
		c.end()
	}
	return c.Context.Value(key)
}

// TestLeavesInTheMoment has a caller give up in the moment in which the lock is handed to it: the
// lock is free, and the Observer is called for no release without an acquisition.
func TestLeavesInTheMoment(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		var acquired, released int
		l := s.locker(t, session.Options{Observer: dblock.Observer{
			Acquired: func(string, time.Duration) { acquired++ }, Released: func(string, time.Duration) { released++ },
		}})
		first := acquire(t, l, "k")
		var ctx endsWhenAsked
		ctx.Context, ctx.end = context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := l.Acquire(&ctx, "k")
			gone <- err
		}()
		time.Sleep(time.Second)
		ctx.armed.Store(true)
		release(t, first)
		if err := <-gone; !errors.Is(err, context.Canceled) || !errors.Is(err, dblock.ErrNotAcquired) {
			t.Errorf("who left was told %v", err)
		}
		release(t, acquire(t, l, "k"))
		if acquired != 2 || released != 2 {
			t.Errorf("told of %d grants and %d releases, want 2", acquired, released)
		}
		closes(t, l)
	})
}

// TestWaitsOnAfterALoss ends the connection of a process that waits: it goes on to wait, and is
// notified of the release.
func TestWaitsOnAfterALoss(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		a, b := s.locker(t, session.Options{}), s.locker(t, session.Options{Poll: time.Minute})
		lock := acquire(t, a, "k")
		got := make(chan time.Time, 1)
		go func() {
			lock := acquire(t, b, "k")
			got <- time.Now()
			release(t, lock)
		}()
		time.Sleep(time.Second)
		s.conns[1].Close()
		time.Sleep(time.Second)
		at := time.Now()
		release(t, lock)
		if took := (<-got).Sub(at); took > time.Second {
			t.Errorf("it heard of the release after %v", took)
		}
		closes(t, a, b)
	})
}

// TestWaitsOnThroughFaults has every other request of a call that waits fail, far more often than
// it would try again at once.
func TestWaitsOnThroughFaults(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		a, b := s.locker(t, session.Options{}), s.locker(t, session.Options{Poll: 10 * time.Millisecond})
		lock := acquire(t, a, "k")
		failed, last := 0, false
		s.strike(func(c *conn, steps []session.Step) (bool, error) {
			if c != s.conns[1] {
				return false, nil
			}
			last = steps[0].Op == session.Take && !last
			if last {
				failed++
				return false, errOdd
			}
			return false, nil
		})
		got := make(chan *dblock.Lock, 1)
		go func() { got <- acquire(t, b, "k") }()
		time.Sleep(2 * time.Second)
		release(t, lock)
		release(t, <-got)
		if failed < 20 {
			t.Errorf("only %d requests failed: this test shows nothing", failed)
		}
		closes(t, a, b)
	})
}

// TestLostWhileTaking ends the connection when the server has granted the lock, and the answer is
// on its way.
func TestLostWhileTaking(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		l := s.locker(t, session.Options{})
		other := acquire(t, l, "other")
		s.strike(func(c *conn, steps []session.Step) (bool, error) {
			if c == s.conns[0] {
				c.Close()
				return false, errGone
			}
			return false, nil
		})
		lock := acquire(t, l, "k")
		if len(s.conns) != 2 || s.locks["k"] != s.conns[1] || lock.Context().Err() != nil {
			t.Errorf("%d connections, %v", len(s.conns), s.locks)
		}
		var lost *dblock.LostError
		if err := other.Release(t.Context()); !errors.As(err, &lost) || lost.Reason != dblock.ReasonDisconnected {
			t.Errorf("what was on the connection: %v", err)
		}
		release(t, lock)
		closes(t, l)
	})
}

// TestClosesInAHandOver closes while callers hand a lock on: a caller that was granted it learns of
// that, and all of them end.
func TestClosesInAHandOver(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		l := s.locker(t, session.Options{})
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				for {
					lock, err := l.Acquire(t.Context(), "k")
					if errors.Is(err, dblock.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
					if err := lock.Release(t.Context()); err != nil && !errors.Is(err, dblock.ErrLost) {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(100*time.Millisecond + time.Microsecond)
		closes(t, l)
		callers.Wait()
	})
}

// TestLetsOthersIn has callers of one process hand a lock on for ever, and another process wait: it
// is let in again and again. Each time it waits for as long as a turn may take, and no longer.
func TestLetsOthersIn(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		a, b := s.locker(t, session.Options{}), s.locker(t, session.Options{})
		stop := make(chan struct{})
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					lock := acquire(t, a, "k")
					time.Sleep(10 * time.Millisecond)
					release(t, lock)
				}
			})
		}
		for n := range 10 {
			began := time.Now()
			release(t, acquire(t, b, "k"))
			if waited := time.Since(began); waited > 300*time.Millisecond { // each of ten callers once, for 10 ms
				t.Errorf("wait %d took %v", n, waited)
			}
		}
		close(stop)
		callers.Wait()
		closes(t, a, b)
	})
}

// TestAShowThatFailed announces again that a process waits: else it would get no notification.
func TestAShowThatFailed(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		a, b := s.locker(t, idle), s.locker(t, session.Options{Poll: time.Minute})
		lock := acquire(t, a, "k")
		failed := false
		s.strike(func(_ *conn, steps []session.Step) (bool, error) {
			if steps[0].Op == session.Show && !failed {
				failed = true
				return true, errOdd
			}
			return false, nil
		})
		got := make(chan time.Time, 1)
		go func() {
			lock := acquire(t, b, "k")
			got <- time.Now()
			release(t, lock)
		}()
		time.Sleep(5 * time.Second)
		at := time.Now()
		release(t, lock)
		if took := (<-got).Sub(at); took > time.Second || !failed {
			t.Errorf("it heard of the release after %v", took)
		}
		closes(t, a, b)
	})
}

// TestALateAnswerGrantsNothing has the process pause between a request and its answer, for so long
// that the server has ended the connection since.
func TestALateAnswerGrantsNothing(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		l := s.locker(t, session.Options{IdleTimeout: time.Second})
		paused := false
		s.strike(func(*conn, []session.Step) (bool, error) {
			if !paused {
				paused = true
				time.Sleep(2 * time.Second)
			}
			return false, nil
		})
		lock := acquire(t, l, "k")
		if len(s.conns) != 2 || time.Now().After(lock.ValidUntil()) {
			t.Errorf("granted on connection %d, valid until %v ago", len(s.conns), time.Since(lock.ValidUntil()))
		}
		release(t, lock)
		closes(t, l)
	})
}

// TestMoreThanAConnectionCarries opens a second connection, refuses what is beyond the last one,
// and closes those that have nothing any more.
func TestMoreThanAConnectionCarries(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		s.most = 3
		l := s.locker(t, session.Options{MaxConns: 2})
		var locks []*dblock.Lock
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
			locks = append(locks, acquire(t, l, key))
		}
		if _, err := l.Acquire(t.Context(), "g"); !errors.Is(err, dblock.ErrOverloaded) || len(s.conns) != 2 {
			t.Errorf("beyond the last: %v, on %d connections", err, len(s.conns))
		}
		for _, lock := range locks {
			release(t, lock)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		open := 0
		for _, c := range s.conns {
			if !c.Closed() {
				open++
			}
		}
		if open != 1 {
			t.Errorf("%d connections are open, want 1", open)
		}
		closes(t, l)
	})
}

// TestTriesBehindATidyUp: that a process tidies up after a wait is no reason to refuse a lock.
func TestTriesBehindATidyUp(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		a, b := s.locker(t, session.Options{}), s.locker(t, session.Options{})
		lock := acquire(t, a, "k")
		got := make(chan *dblock.Lock, 1)
		go func() { got <- acquire(t, b, "k") }()
		time.Sleep(time.Second)
		release(t, lock)
		release(t, <-got)
		again, err := b.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		release(t, again)
		closes(t, a, b)
	})
}
