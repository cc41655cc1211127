package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// TestAWaitingWriterDied: a writer that has made itself the holder of a key, and waits for a
// reader, dies. The next caller takes the key over: a set that has it, and a call that waits with a
// ticket.
func TestAWaitingWriterDied(t *testing.T) {
	t.Parallel()
	next := map[string]func(ctx context.Context, s *memlease.Server, t *testing.T) (*dblock.Lock, error){
		"set": func(ctx context.Context, s *memlease.Server, t *testing.T) (*dblock.Lock, error) {
			time.Sleep(2 * ttl)
			return newProcess(s).locker(t, lease.Options{}).AcquireAll(ctx, []string{"j", key})
		},
		"ticket": func(ctx context.Context, s *memlease.Server, t *testing.T) (*dblock.Lock, error) {
			return newProcess(s).locker(t, lease.Options{Fair: true}).Acquire(ctx, key)
		},
	}
	for name, acquireNext := range next {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memlease.Server) {
				reader, err := newProcess(s).locker(t, lease.Options{}).Acquire(t.Context(), key, dblock.WithShared())
				if err != nil {
					t.Fatal(err)
				}
				p := newProcess(s)
				writer := p.locker(t, lease.Options{})
				ctx, giveUp := context.WithCancel(t.Context())
				ended := failing(ctx, writer)
				p.disturb(func(context.Context, string, func() error) error {
					return &memlease.Failure{As: sqlerr.Unavailable, Err: context.DeadlineExceeded}
				})
				giveUp()
				if err := <-ended; err == nil {
					t.Error("the writer was granted the key beside a reader")
				}
				time.AfterFunc(ttl/2, func() { _ = reader.Release(context.Background()) })
				within, cancel := context.WithTimeout(t.Context(), 5*ttl)
				defer cancel()
				lock, err := acquireNext(within, s, t)
				if err != nil {
					t.Fatal(err)
				}
				release(t, lock)
				p.disturb(func(_ context.Context, _ string, run func() error) error { return run() })
			})
		})
	}
}
