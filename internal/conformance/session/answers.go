package session

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// RunAnswers replaces the server's answers while session locks are in use, in both ways to wait.
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
	l, closePool, err := e.Open(ctx, x.DSN, &faultconn.Dialer{}, o)
	if err != nil {
		x.Told(err)
		x.Heal()
		err := x.Again(ctx, "opening", func(ctx context.Context) (err error) {
			l, closePool, err = e.Open(ctx, x.DSN, &faultconn.Dialer{}, o)
			return err
		})
		if err != nil {
			return err
		}
	}
	defer closePool()
	other, closeOther, err := e.Open(ctx, x.Near, nil, SessionOptions{Poll: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	defer closeOther()
	defer other.Close(ctx)
	var crowd sync.WaitGroup
	for n := range x.Crowd {
		crowd.Go(func() {
			for range x.Crowd - 1 {
				if n == 0 { // another process, whose release is heard of
					holdSession(ctx, other, x.Key, true, func(error) {})
					continue
				}
				key := x.Key
				if n == 4 {
					key += "/other"
				}
				var opts []dblock.Option
				if e.Kind == devdb.Postgres && n == 2 {
					opts = append(opts, dblock.WithShared())
				}
				holdSession(ctx, l, key, n != 3, x.Told, opts...)
			}
		})
	}
	crowd.Wait()
	x.Heal()
	key := x.Key
	if lied {
		key += "/again"
	}
	err = x.Again(ctx, "acquiring", func(ctx context.Context) error {
		lock, err := l.Acquire(ctx, key)
		if err == nil {
			err = lock.Release(ctx)
		}
		return err
	})
	err = errors.Join(err, x.Again(ctx, "acquiring by another process", func(ctx context.Context) error {
		lock, err := other.Acquire(ctx, key)
		if err == nil {
			err = lock.Release(ctx)
		}
		return err
	}))
	if !lied {
		err = errors.Join(err, e.isFree(ctx, x))
	}
	closing, cancel := context.WithTimeout(ctx, answers.Patience)
	defer cancel()
	x.Told(l.Close(closing))
	return err
}

func holdSession(ctx context.Context, l dblock.Locker, key string, waits bool, told func(error), opts ...dblock.Option) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	how := l.TryAcquire
	if waits {
		how = l.Acquire
	}
	lock, err := how(ctx, key, opts...)
	if err != nil {
		told(err)
		return
	}
	time.Sleep(time.Millisecond)
	told(lock.Release(context.WithoutCancel(ctx)))
}

// isFree looks for what sessions of the server still have.
func (e Session) isFree(ctx context.Context, x *answers.Trial) error {
	var errs []error
	for _, key := range []string{x.Key, x.Key + "/other"} {
		if e.Kind == devdb.Postgres {
			number, _ := e.Names("", key)
			errs = append(errs, x.Free(ctx, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"+
				" AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"+
				" AND (classid::bigint << 32) | objid::bigint = "+number))
			continue
		}
		var database string
		if err := x.DB.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&database); err != nil {
			return err
		}
		lock, mark := e.Names(database, key)
		for _, name := range []string{lock, mark} {
			errs = append(errs, x.Free(ctx, "SELECT IS_USED_LOCK('"+name+"') IS NOT NULL"))
		}
	}
	return errors.Join(errs...)
}
