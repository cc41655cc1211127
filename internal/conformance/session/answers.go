package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// RunAnswers replaces the server's answers while session locks are in use, with waits in the
// process and at the server.
func (e Session) RunAnswers(t *testing.T) {
	var users []answers.User
	for name, o := range map[string]SessionOptions{"in turn": {}, "at the server": {ServerQueue: true}} {
		o.IdleTimeout, o.Poll, o.MaxConns = answers.TTL, 20*time.Millisecond, 4
		users = append(users, answers.User{Name: name, Use: func(ctx context.Context, x *answers.Trial) error { return e.use(ctx, x, o) }})
	}
	answers.Run(t, e.Kind, users)
}

func (e Session) use(ctx context.Context, x *answers.Trial, o SessionOptions) error {
	lied := x.Lied && x.Crowd > 2 // one lie is seen through
	var l dblock.Locker
	var closePool func()
	open := func(ctx context.Context) (err error) {
		l, closePool, err = e.Open(ctx, x.DSN, &faultconn.Dialer{}, o)
		return err
	}
	if err := x.Open(ctx, open); err != nil {
		return err
	}
	defer closePool()
	other, closeOther, err := e.Open(ctx, x.Near, nil, quick)
	if err != nil {
		return err
	}
	defer closeOther()
	defer other.Close(ctx)
	suite.Crowd(x.Crowd, func(n int) {
		for range x.Crowd - 1 {
			e.useOnce(ctx, x, l, other, n)
		}
	})
	x.Heal()
	key := x.Key
	if lied {
		key += "/again"
	}
	for name, l := range map[string]dblock.Locker{"acquiring": l, "acquiring by another process": other} {
		err = errors.Join(err, x.Again(ctx, name, func(ctx context.Context) error {
			lock, err := l.Acquire(ctx, key)
			if err == nil {
				err = lock.Release(ctx)
			}
			return err
		}))
	}
	if !lied {
		err = errors.Join(err, e.isFree(ctx, x))
	}
	x.Close(ctx, l.Close)
	return err
}

// useOnce is one call of the n-th caller: the first is of the other process, the third reads, the
// fourth does not wait, and the fifth has a key of its own.
func (e Session) useOnce(ctx context.Context, x *answers.Trial, l, other dblock.Locker, n int) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	key, told, acquire := x.Key, x.Returned, l.Acquire
	var opts []dblock.Option
	switch {
	case n == 0: // its release is notified
		acquire, told = other.Acquire, func(error) {}
	case n == 2 && e.Kind == devdb.Postgres:
		opts = append(opts, dblock.WithShared())
	case n == 3:
		acquire = l.TryAcquire
	case n == 4:
		key += "/other"
	}
	lock, err := acquire(ctx, key, opts...)
	if err != nil {
		told(err)
		return
	}
	time.Sleep(time.Millisecond)
	told(lock.Release(context.WithoutCancel(ctx)))
}

// isFree looks for what sessions of the server still have.
func (e Session) isFree(ctx context.Context, x *answers.Trial) error {
	db := &env{DB: &suite.DB{DB: x.DB, Kind: e.Kind, DSN: x.Near}}
	var errs []error
	for _, key := range []string{x.Key, x.Key + "/other"} {
		lock, mark := e.Names(db.database(), key)
		if e.Kind == devdb.Postgres {
			errs = append(errs, x.Free(ctx, "SELECT count(*)"+advisory+" AND objsubid = 1 AND (classid::bigint << 32) | objid::bigint = "+lock))
			continue
		}
		for _, name := range []string{lock, mark} {
			errs = append(errs, x.Free(ctx, "SELECT IS_USED_LOCK('"+name+"') IS NOT NULL"))
		}
	}
	return errors.Join(errs...)
}
