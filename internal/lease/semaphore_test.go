package lease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
)

// TestASemaphoreIsMadeOnce: a crowd is the first to want permits of a semaphore. One statement of
// the process makes it, also if the first caller leaves meanwhile.
func TestASemaphoreIsMadeOnce(t *testing.T) {
	const callers = 30
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		const makes = "InsertSemaphore"
		p.disturb(func(_ context.Context, call string, run func() error) error {
			if call == makes {
				time.Sleep(100 * time.Millisecond) // all others come meanwhile
			}
			return run()
		})
		l := p.locker(t, lease.Options{})
		p.called()
		permits := dblock.WithPermits(1, callers)
		first, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // it ends while the semaphore is made
		defer cancel()
		var crowd sync.WaitGroup
		crowd.Go(func() {
			if _, err := l.Acquire(first, key, permits); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the first caller: %v", err)
			}
		})
		time.Sleep(time.Millisecond)
		for range callers {
			crowd.Go(func() {
				lock, err := l.Acquire(t.Context(), key, permits)
				if err != nil {
					t.Error(err)
					return
				}
				release(t, lock)
			})
		}
		crowd.Wait()
		if n := p.called()[makes]; n != 1 {
			t.Errorf("the semaphore was made %d times", n)
		}
	})
}

// TestCloseEndsTheMakingOfASemaphore: the call for which it is made says that the Locker is closed.
func TestCloseEndsTheMakingOfASemaphore(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		p := newProcess(s)
		makes := make(chan struct{})
		p.disturb(func(ctx context.Context, call string, run func() error) error {
			if call != "InsertSemaphore" {
				return run()
			}
			close(makes)
			<-ctx.Done()
			return ctx.Err()
		})
		l := p.locker(t, lease.Options{})
		ended := make(chan error, 1)
		go func() {
			_, err := l.Acquire(t.Context(), key, dblock.WithPermits(1, 2))
			ended <- err
		}()
		<-makes
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, dblock.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	})
}
