package session_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
)

// slowly has the server take a tenth of a second for each statement, and notes what they carry.
func slowly(s *server) (sent func() [][]session.Step) {
	var mu sync.Mutex
	var all [][]session.Step
	s.strike(func(_ *conn, steps []session.Step) (bool, error) {
		mu.Lock()
		all = append(all, append([]session.Step(nil), steps...))
		mu.Unlock()
		time.Sleep(100 * time.Millisecond)
		return false, nil
	})
	return func() [][]session.Step {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

// TestACrowdSharesStatements: what comes while a statement is under way shares the next, up to as
// much as one carries.
func TestACrowdSharesStatements(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		l := s.locker(t, session.Options{MaxBatch: 10, IdleTimeout: time.Hour})
		sent := slowly(s)
		var callers sync.WaitGroup
		for i := range 31 {
			callers.Go(func() { release(t, acquire(t, l, strconv.Itoa(i))) })
			time.Sleep(time.Millisecond)
		}
		callers.Wait()
		all := sent()
		steps := 0
		for i, statement := range all {
			steps += len(statement)
			if len(statement) > 10 || i == 0 && len(statement) != 1 || i == 1 && len(statement) != 10 {
				t.Errorf("statement %d carries %d steps", i, len(statement))
			}
		}
		if steps != 62 || len(all) > 8 {
			t.Errorf("%d steps in %d statements", steps, len(all))
		}
		closes(t, l)
	})
}

// TestACrowdIsSpread: it has two connections, where it may, so that one works while the other's
// callers are answered.
func TestACrowdIsSpread(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]int{1: 1, 4: 2} {
		t.Run(strconv.Itoa(most), func(t *testing.T) {
			run(t, func(t *testing.T, s *server) {
				l := s.locker(t, session.Options{MaxConns: most, IdleTimeout: time.Hour})
				var held []*dblock.Lock
				for i := range 90 {
					held = append(held, acquire(t, l, strconv.Itoa(i)))
				}
				has := map[*conn]int{}
				for i := range held {
					has[s.holder(session.ID(strconv.Itoa(i)))]++
				}
				for _, n := range has {
					if want == 2 && n < 40 {
						t.Errorf("of 90 locks a connection has %d", n)
					}
				}
				if len(has) != want {
					t.Errorf("%d connections where %d are allowed", len(has), most)
				}
				for _, lock := range held {
					release(t, lock)
				}
				closes(t, l)
			})
		})
	}
}

// TestLeavesTheQueue: the request of a caller that gave up before it was sent is never sent, and
// keeps no other caller waiting.
func TestLeavesTheQueue(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		l := s.locker(t, idle)
		sent := slowly(s)
		var callers sync.WaitGroup
		callers.Go(func() { release(t, acquire(t, l, "first")) })
		time.Sleep(time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		for i := range 10 {
			callers.Go(func() {
				_, err := l.Acquire(ctx, "gone-"+strconv.Itoa(i))
				if !errors.Is(err, dblock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("who has gone was told %v", err)
				}
			})
		}
		callers.Go(func() { release(t, acquire(t, l, "stays")) })
		callers.Wait()
		for _, statement := range sent() {
			for _, step := range statement {
				if step.ID != "first" && step.ID != "stays" {
					t.Errorf("%q was sent", step.ID)
				}
			}
		}
		closes(t, l)
	})
}

// TestTheQueueIsBounded: more than may wait are refused at once, and no release is.
func TestTheQueueIsBounded(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		l := s.locker(t, session.Options{MaxQueue: 2, IdleTimeout: time.Hour})
		var held []*dblock.Lock
		for _, key := range []string{"a", "b", "c"} {
			held = append(held, acquire(t, l, key))
		}
		slowly(s)
		var callers sync.WaitGroup
		for _, key := range []string{"sent", "waits", "waits too"} {
			callers.Go(func() { release(t, acquire(t, l, key)) })
			time.Sleep(time.Millisecond)
		}
		if _, err := l.Acquire(t.Context(), "one more"); !errors.Is(err, dblock.ErrOverloaded) {
			t.Errorf("beyond the bound: %v", err)
		}
		for _, lock := range held {
			callers.Go(func() { release(t, lock) })
		}
		callers.Wait()
		release(t, acquire(t, l, "one more"))
		closes(t, l)
	})
}

// TestALateAnswerWakesNobodyElse: a caller has gone while its request was under way, and what it
// waited at is used by others when the answer comes. They have what they asked for, and nothing
// else.
func TestALateAnswerWakesNobodyElse(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		l := s.locker(t, idle)
		lock := acquire(t, l, "k")
		s.strike(func(_ *conn, steps []session.Step) (bool, error) {
			if steps[0].ID == "k" {
				time.Sleep(30 * time.Second)
			}
			return false, nil
		})
		isUnconfirmed(t, lock.Release(t.Context())) // the server has it still
		var callers sync.WaitGroup
		for i := range 20 {
			callers.Go(func() {
				began := time.Now()
				lock := acquire(t, l, strconv.Itoa(i))
				if took := time.Since(began); took < 10*time.Second {
					t.Errorf("it was granted after %v, while the connection was busy", took)
				}
				if s.holder(session.ID(strconv.Itoa(i))) == nil {
					t.Errorf("granted %d, and the server does not know", i)
				}
				release(t, lock)
			})
		}
		callers.Wait()
		closes(t, l)
	})
}

func isUnconfirmed(t *testing.T, err error) {
	t.Helper()
	var lost *dblock.LostError
	if !errors.As(err, &lost) || lost.Reason != dblock.ReasonUnconfirmed {
		t.Errorf("a release that the server did not answer returned %v", err)
	}
}
