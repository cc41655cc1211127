package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
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
	var users []answersUser
	for mode, how := range answersModes {
		users = append(users, answersUser{mode, func(ctx context.Context, x *answersTrial) error { return e.use(ctx, x, mode, how) }})
	}
	runAnswers(t, e.Kind, users)
}

func (e Lease) use(ctx context.Context, x *answersTrial, mode string, how acquireMode) error {
	o := LeaseOptions{TTL: answersTTL, Poll: 20 * time.Millisecond, Fair: mode == "fair"}
	l, closePool, err := e.OpenOn(ctx, x.dsn, &faultconn.Dialer{}, o)
	if err != nil {
		x.told(err)
		x.heal()
		err := x.again(ctx, "opening", func(ctx context.Context) (err error) {
			l, closePool, err = e.OpenOn(ctx, x.dsn, &faultconn.Dialer{}, o)
			return err
		})
		if err != nil {
			return err
		}
	}
	defer closePool()
	var crowd sync.WaitGroup
	for n := range x.crowd {
		crowd.Go(func() {
			for range x.crowd - 1 {
				e.hold(ctx, x, l, mode, n, how)
			}
		})
	}
	crowd.Wait()
	if _, err := l.Held(ctx); err != nil {
		x.told(err)
	}
	x.heal()
	key := x.key
	if x.lied {
		key += "/again"
	}
	err = x.again(ctx, "acquiring", func(ctx context.Context) error {
		lock, err := how(ctx, l, key)
		if err == nil {
			err = lock.Release(ctx)
		}
		return err
	})
	if !x.lied {
		err = errors.Join(err, x.isFree(ctx))
	}
	closing, cancel := context.WithTimeout(ctx, answersPatience)
	defer cancel()
	x.told(l.Close(closing))
	return err
}

// hold acquires one lock and gives it back.
func (e Lease) hold(ctx context.Context, x *answersTrial, l Leases, mode string, n int, how acquireMode) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	key := x.key
	if n == 3 && mode != "sets" {
		key += "/other"
	}
	lock, err := how(ctx, l, key)
	if err != nil {
		x.told(err)
		return
	}
	if n == 0 && mode != "shared" {
		err := e.Guarded(ctx, l, lock, "SELECT 1", func() {})
		if err != nil && ctx.Err() == nil && lock.Context().Err() == nil {
			x.told(err)
		}
	}
	if n == 1 {
		x.told(lock.ExpireIn(ctx, time.Minute))
	}
	x.told(lock.Release(context.WithoutCancel(ctx)))
}

// isFree looks for what a live process of the server's tables still has.
func (x *answersTrial) isFree(ctx context.Context) error {
	now, mark := "UTC_TIMESTAMP(6)", "?"
	if x.kind == devdb.Postgres {
		now, mark = "clock_timestamp()", "$1"
	}
	var errs []error
	for _, table := range []string{"dblock_lease", "dblock_reader", "dblock_permit", "dblock_ticket"} {
		held := "r.handle IS NOT NULL"
		if table == "dblock_ticket" && x.kind != devdb.Postgres { // there a ticket that was served is deleted
			held = "NOT r.served"
		}
		errs = append(errs, x.free(ctx, fmt.Sprintf("SELECT count(*) FROM %s r JOIN dblock_member m ON m.member_id = r.member_id"+
			" WHERE %s AND m.expires_at > %s AND r.lease_key LIKE %s", table, held, now, mark), x.key+"%"))
	}
	return errors.Join(errs...)
}

// RunAnswers replaces the server's answers while session locks are in use, in both ways to wait.
func (e Session) RunAnswers(t *testing.T) {
	var users []answersUser
	for name, o := range map[string]SessionOptions{"in turn": {}, "at the server": {ServerQueue: true}} {
		o.IdleTimeout, o.Poll, o.MaxConns = answersTTL, 20*time.Millisecond, 4
		users = append(users, answersUser{name, func(ctx context.Context, x *answersTrial) error { return e.use(ctx, x, o) }})
	}
	runAnswers(t, e.Kind, users)
}

func (e Session) use(ctx context.Context, x *answersTrial, o SessionOptions) error {
	lied := x.lied && x.crowd > 2 // one lie is seen through
	l, closePool, err := e.Open(ctx, x.dsn, &faultconn.Dialer{}, o)
	if err != nil {
		x.told(err)
		x.heal()
		err := x.again(ctx, "opening", func(ctx context.Context) (err error) {
			l, closePool, err = e.Open(ctx, x.dsn, &faultconn.Dialer{}, o)
			return err
		})
		if err != nil {
			return err
		}
	}
	defer closePool()
	other, closeOther, err := e.Open(ctx, x.near, nil, SessionOptions{Poll: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	defer closeOther()
	defer other.Close(ctx)
	var crowd sync.WaitGroup
	for n := range x.crowd {
		crowd.Go(func() {
			for range x.crowd - 1 {
				if n == 0 { // another process, whose release is heard of
					holdSession(ctx, other, x.key, true, func(error) {})
					continue
				}
				key := x.key
				if n == 4 {
					key += "/other"
				}
				var opts []dblock.Option
				if e.Kind == devdb.Postgres && n == 2 {
					opts = append(opts, dblock.WithShared())
				}
				holdSession(ctx, l, key, n != 3, x.told, opts...)
			}
		})
	}
	crowd.Wait()
	x.heal()
	key := x.key
	if lied {
		key += "/again"
	}
	err = x.again(ctx, "acquiring", func(ctx context.Context) error {
		lock, err := l.Acquire(ctx, key)
		if err == nil {
			err = lock.Release(ctx)
		}
		return err
	})
	err = errors.Join(err, x.again(ctx, "acquiring by another process", func(ctx context.Context) error {
		lock, err := other.Acquire(ctx, key)
		if err == nil {
			err = lock.Release(ctx)
		}
		return err
	}))
	if !lied {
		err = errors.Join(err, e.isFree(ctx, x))
	}
	closing, cancel := context.WithTimeout(ctx, answersPatience)
	defer cancel()
	x.told(l.Close(closing))
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
func (e Session) isFree(ctx context.Context, x *answersTrial) error {
	var errs []error
	for _, key := range []string{x.key, x.key + "/other"} {
		if e.Kind == devdb.Postgres {
			number, _ := e.Names("", key)
			errs = append(errs, x.free(ctx, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"+
				" AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"+
				" AND (classid::bigint << 32) | objid::bigint = "+number))
			continue
		}
		var database string
		if err := x.db.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&database); err != nil {
			return err
		}
		lock, mark := e.Names(database, key)
		for _, name := range []string{lock, mark} {
			errs = append(errs, x.free(ctx, "SELECT IS_USED_LOCK('"+name+"') IS NOT NULL"))
		}
	}
	return errors.Join(errs...)
}
