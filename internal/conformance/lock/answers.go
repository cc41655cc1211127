package lock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// acquireMode is one way to get a lock under a prefix of keys.
type acquireMode func(ctx context.Context, l Leases, prefix string) (*dblock.Lock, error)

// answersModes are the modes of leases, each with its own statements.
var answersModes = map[string]acquireMode{
	"exclusive": func(ctx context.Context, l Leases, prefix string) (*dblock.Lock, error) {
		return l.Acquire(ctx, prefix, dblock.WithData([]byte("data")))
	},
	"try": func(ctx context.Context, l Leases, prefix string) (*dblock.Lock, error) {
		return l.TryAcquire(ctx, prefix)
	},
	"shared": func(ctx context.Context, l Leases, prefix string) (*dblock.Lock, error) {
		return l.Acquire(ctx, prefix, dblock.WithShared())
	},
	"permits": func(ctx context.Context, l Leases, prefix string) (*dblock.Lock, error) {
		return l.Acquire(ctx, prefix, dblock.WithPermits(2, 3))
	},
	"sets": func(ctx context.Context, l Leases, prefix string) (*dblock.Lock, error) {
		return l.AcquireAll(ctx, []string{prefix, prefix + "/b", prefix + "/c"})
	},
	"fair": func(ctx context.Context, l Leases, prefix string) (*dblock.Lock, error) {
		return l.Acquire(ctx, prefix)
	},
}

// RunAnswers replaces the server's answers while leases of each mode are in use.
func (e Lease) RunAnswers(t *testing.T) {
	var users []answers.User
	for mode, how := range answersModes {
		users = append(users, answers.User{Name: mode, Use: func(ctx context.Context, x *answers.Trial) error { return e.use(ctx, x, mode, how) }})
	}
	answers.Run(t, e.Kind, users)
}

func (e Lease) use(ctx context.Context, x *answers.Trial, mode string, how acquireMode) error {
	o := LeaseOptions{TTL: answers.TTL, Poll: 20 * time.Millisecond, Fair: mode == "fair"}
	l, closePool, err := e.OpenOn(ctx, x.DSN, &faultconn.Dialer{}, o)
	if err != nil {
		x.Told(err)
		x.Heal()
		err := x.Again(ctx, "opening", func(ctx context.Context) (err error) {
			l, closePool, err = e.OpenOn(ctx, x.DSN, &faultconn.Dialer{}, o)
			return err
		})
		if err != nil {
			return err
		}
	}
	defer closePool()
	var crowd sync.WaitGroup
	for n := range x.Crowd {
		crowd.Go(func() {
			for range x.Crowd - 1 {
				e.hold(ctx, x, l, mode, n, how)
			}
		})
	}
	crowd.Wait()
	if _, err := l.Held(ctx); err != nil {
		x.Told(err)
	}
	x.Heal()
	key := x.Key
	if x.Lied {
		key += "/again"
	}
	err = x.Again(ctx, "acquiring", func(ctx context.Context) error {
		lock, err := how(ctx, l, key)
		if err == nil {
			err = lock.Release(ctx)
		}
		return err
	})
	if !x.Lied {
		err = errors.Join(err, x.IsFree(ctx))
	}
	closing, cancel := context.WithTimeout(ctx, answers.Patience)
	defer cancel()
	x.Told(l.Close(closing))
	return err
}

// hold acquires one lock and gives it back.
func (e Lease) hold(ctx context.Context, x *answers.Trial, l Leases, mode string, n int, how acquireMode) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	key := x.Key
	if n == 3 && mode != "sets" {
		key += "/other"
	}
	lock, err := how(ctx, l, key)
	if err != nil {
		x.Told(err)
		return
	}
	if n == 0 && mode != "shared" {
		err := e.Guarded(ctx, l, lock, "SELECT 1", func() {})
		if err != nil && ctx.Err() == nil && lock.Context().Err() == nil {
			x.Told(err)
		}
	}
	if n == 1 {
		x.Told(lock.ExpireIn(ctx, time.Minute))
	}
	x.Told(lock.Release(context.WithoutCancel(ctx)))
}
