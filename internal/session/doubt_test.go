package session_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
)

// TestDoubtIsClearedUp has the server execute a request and answer with an error. No effect of it
// may remain, and the other locks of the connection stay. If a server is too full even for a
// release, the session drops its locks.
func TestDoubtIsClearedUp(t *testing.T) {
	for name, op := range map[string]session.Op{"taken": session.Take, "freed": session.Free} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, s *server) {
				l := s.locker(t, session.Options{})
				other, lock := acquire(t, l, "other"), acquire(t, l, "k")
				granted := false
				s.strike(func(_ *conn, steps []session.Step) (bool, error) {
					if steps[0].Op != op {
						return false, nil
					}
					granted = true
					return op == session.Take, errOdd // a release has not come through
				})
				if op == session.Free {
					release(t, lock)
				} else if _, err := l.TryAcquire(t.Context(), "fresh"); !errors.Is(err, dblock.ErrBusy) {
					t.Errorf("told %v", err)
				}
				if !granted || len(s.conns) != 1 || other.Context().Err() != nil || s.locks["fresh"] != nil || (s.locks["k"] == nil) != (op == session.Free) {
					t.Errorf("%d connections, %v, %v", len(s.conns), s.locks, context.Cause(other.Context()))
				}
				s.strike(func(*conn, []session.Step) (bool, error) { return false, nil })
				release(t, lock)
				release(t, other)
				closes(t, l)
			})
		})
	}
}

// TestDoubtHasTime interrupts each statement that reconciles an operation, for a while or for ever:
// the other locks of the connection stay, or end soon.
func TestDoubtHasTime(t *testing.T) {
	for name, times := range map[string]int{"for a while": 20, "for ever": 1 << 30} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, s *server) {
				l := s.locker(t, session.Options{})
				other := acquire(t, l, "other")
				interrupted := 0
				s.strike(func(_ *conn, steps []session.Step) (bool, error) {
					if steps[0].Op == session.Drop {
						interrupted++
					}
					took := steps[0].Op == session.Take && interrupted == 0
					return took, map[bool]error{true: errOdd}[took || steps[0].Op == session.Drop && interrupted <= times]
				})
				began := time.Now()
				var lost time.Duration
				context.AfterFunc(other.Context(), func() { lost = time.Since(began) })
				lock, err := l.TryAcquire(t.Context(), "k")
				synctest.Wait()
				if times == 20 && (other.Context().Err() != nil || err != nil) {
					t.Errorf("after %d interrupts: the other lock ended after %v, told %v", interrupted, lost, err)
				}
				if times > 20 && (lost < time.Second || lost > 1100*time.Millisecond) {
					t.Errorf("after %d interrupts: the other lock ended after %v, told %v", interrupted, lost, err)
				}
				s.strike(func(*conn, []session.Step) (bool, error) { return false, nil })
				if lock != nil {
					release(t, lock)
				}
				_ = other.Release(t.Context())
				closes(t, l)
			})
		})
	}
}
