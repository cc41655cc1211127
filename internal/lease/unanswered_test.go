package lease_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// TestAWaitWhoseStatementWasLate: the outcome of a call is unknown while a request without a reply
// may still be granted, though a later one found the key held.
func TestAWaitWhoseStatementWasLate(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct {
		fair bool
		opts []dblock.Option
		set  bool
	}{
		"exclusive": {}, "fair": {fair: true}, "set": {set: true},
		"shared": {opts: []dblock.Option{dblock.WithShared()}}, "permits": {opts: []dblock.Option{dblock.WithPermits(1, 1)}},
	} {
		for wait, want := range map[time.Duration]error{ttl: dblock.ErrOutcomeUnknown, 5 * ttl: dblock.ErrNotAcquired} {
			t.Run(name+"/"+wait.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T, s *memlease.Server) {
					var holds []dblock.Option
					if name == "permits" {
						holds = m.opts
					}
					held, err := newProcess(s).locker(t, lease.Options{}).Acquire(t.Context(), key, holds...)
					if err != nil {
						t.Fatal(err)
					}
					p := newProcess(s)
					l := p.locker(t, lease.Options{Fair: m.fair})
					var lost atomic.Bool
					p.disturb(func(ctx context.Context, call string, run func() error) error {
						if strings.HasPrefix(call, "Acquire") && !lost.Swap(true) {
							<-ctx.Done()
							return &memlease.Failure{As: sqlerr.Unresolved, Err: ctx.Err()}
						}
						return run()
					})
					ctx, cancel := context.WithTimeout(t.Context(), wait)
					defer cancel()
					if m.set {
						_, err = l.AcquireAll(ctx, []string{key, "another"})
					} else {
						_, err = l.Acquire(ctx, key, m.opts...)
					}
					if !lost.Load() || !errors.Is(err, want) || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("after %v: %v, want: %v", wait, err, want)
					}
					release(t, held)
					time.Sleep(5 * ttl) // until nothing can be granted any more
				})
			})
		}
	}
}
