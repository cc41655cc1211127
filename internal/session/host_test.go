package session_test

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
)

// stuck is the handler of a Log that blocks until it may go on.
type stuck struct {
	slog.Handler
	until chan struct{}
}

func (s stuck) Handle(context.Context, slog.Record) error {
	<-s.until
	return nil
}

// TestAHostThatBlocksKeepsNoLock: all locks end, and other callers go on, while the Log and the
// Observer block.
func TestAHostThatBlocksKeepsNoLock(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*server, *session.Locker){
		"the connection is lost": func(s *server, _ *session.Locker) { s.conns[0].Close() },
		"the Locker is closed": func(_ *server, l *session.Locker) {
			go func() { _ = l.Close(context.Background()) }()
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, s *server) {
				host := stuck{slog.NewTextHandler(io.Discard, nil), make(chan struct{})}
				var told atomic.Int64
				l := s.locker(t, session.Options{IdleTimeout: time.Hour, Log: slog.New(host), Observer: dblock.Observer{
					Lost: func(string, time.Duration, dblock.Reason) {
						<-host.until
						told.Add(1)
					},
				}})
				locks := []*dblock.Lock{acquire(t, l, "a"), acquire(t, l, "b"), acquire(t, l, "c")}
				lose(s, l)
				time.Sleep(time.Second)
				for _, lock := range locks {
					if lock.Context().Err() == nil {
						t.Errorf("%q is not lost", lock.Key())
					}
					_ = lock.Release(t.Context())
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if lock, err := l.Acquire(ctx, "a"); err == nil {
					release(t, lock)
				} else if name == "the connection is lost" {
					t.Error(err)
				}
				cancel()
				close(host.until)
				synctest.Wait()
				if n := told.Load(); n != 3 {
					t.Errorf("the Observer was told of %d losses", n)
				}
				closes(t, l)
			})
		})
	}
}
