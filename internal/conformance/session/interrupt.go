package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

const interruptsFor = time.Second

// interruptedHandOvers interrupts the statements of a session while its callers hand locks over and another process asks for
// the same locks. No answer of the server may end the process, and all callers make progress.
func interruptedHandOvers(t *testing.T, s *env) {
	for name, o := range map[string]SessionOptions{
		"default": {Poll: 20 * time.Millisecond}, "server queue": {ServerQueue: true, MaxConns: mostInLine},
	} {
		s.interruptHandOvers(t, name, o)
	}
}

func (s *env) interruptHandOvers(t *testing.T, name string, o SessionOptions) {
	a, b := s.process(t, o), s.process(t, o)
	kept := suite.Acquire(t, a, name+" kept")
	id := s.holder(t, name+" kept")
	ctx, stop := context.WithTimeout(t.Context(), interruptsFor)
	defer stop()
	var callers sync.WaitGroup
	var mu sync.Mutex
	had, failed := 0, 0
	for i := range 12 {
		l := a
		if i%4 == 3 {
			l = b
		}
		callers.Go(func() {
			for ctx.Err() == nil {
				err := holdBriefly(ctx, l, fmt.Sprint(name, i%2))
				mu.Lock()
				if err == nil {
					had++
				} else if ctx.Err() == nil {
					failed++
				}
				mu.Unlock()
				if err != nil && ctx.Err() == nil && !errors.Is(err, dblock.ErrBusy) && !errors.Is(err, dblock.ErrUnavailable) && !errors.Is(err, dblock.ErrLost) {
					t.Error(err)
				}
			}
		})
	}
	interrupts := 0
	for ; ctx.Err() == nil; interrupts++ {
		_ = s.end(ctx, id, true)
		time.Sleep(rand.N(4 * time.Millisecond))
	}
	callers.Wait()
	t.Logf("%s: %d interrupts, %d locks were held, %d calls failed", name, interrupts, had, failed)
	if had == 0 {
		t.Error("no lock was held: this test shows nothing")
	}
	if kept.Context().Err() != nil || s.holder(t, name+" kept") != id {
		t.Errorf("another lock of the connection was lost: %v", context.Cause(kept.Context()))
	}
	suite.Release(t, kept)
}

func holdBriefly(ctx context.Context, l dblock.Locker, key string) error {
	lock, err := l.Acquire(ctx, key)
	if err != nil {
		return err
	}
	time.Sleep(rand.N(200 * time.Microsecond))
	return lock.Release(context.WithoutCancel(ctx))
}
