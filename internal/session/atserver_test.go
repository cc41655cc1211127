package session_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
)

// TestADeadlineWhileConnecting ends a deadline while a connection is being opened: the error says
// that the lock is held, and what ended the wait, in both ways to wait.
func TestADeadlineWhileConnecting(t *testing.T) {
	for name, serverQueue := range map[string]bool{"default": false, "server queue": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, s *server) {
				a, b := s.locker(t, session.Options{}), s.locker(t, session.Options{ServerQueue: serverQueue})
				lock := acquire(t, a, "k")
				s.open = func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				}
				if !serverQueue {
					s.conns[1].Close()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err := b.Acquire(ctx, "k")
				var held *dblock.HeldError
				if !errors.As(err, &held) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, dblock.ErrUnavailable) {
					t.Errorf("Acquire returned %v", err)
				}
				release(t, lock)
				closes(t, a, b)
			})
		})
	}
}

// TestAConnectionEndedWhileItOpens ends connections while they are being opened, as KILL QUERY can.
// A call in the server's queue waits on.
func TestAConnectionEndedWhileItOpens(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		a, b := s.locker(t, session.Options{}), s.locker(t, session.Options{ServerQueue: true})
		lock := acquire(t, a, "k")
		ended := 0
		s.open = func(ctx context.Context) error {
			if ended++; ended <= 3 {
				return fmt.Errorf("%w: interrupted", dblock.ErrUnavailable)
			}
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := b.Acquire(ctx, "k")
		if !errors.Is(err, dblock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) || ended != 4 {
			t.Errorf("Acquire returned %v after %d connections", err, ended)
		}
		release(t, lock)
		closes(t, a, b)
	})
}

// TestADeadlineBeforeTheServersQueue ends a deadline in the moment in which the reply to the first
// request comes, which does not wait.
func TestADeadlineBeforeTheServersQueue(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		a, b := s.locker(t, session.Options{}), s.locker(t, session.Options{ServerQueue: true})
		lock := acquire(t, a, "k")
		for range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), roundTrip)
			_, err := b.Acquire(ctx, "k")
			if !errors.Is(err, dblock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("Acquire returned %v", err)
			}
			cancel()
		}
		release(t, lock)
		closes(t, a, b)
	})
}
