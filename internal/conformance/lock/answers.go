package lock

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// answersModes are the modes of leases, each with its own statements; "fair" has its own Locker.
var answersModes = map[string][]dblock.Option{
	"exclusive": {dblock.WithData([]byte("data"))},
	"shared":    {dblock.WithShared()},
	"permits":   {dblock.WithPermits(2, 3)},
	"try":       nil,
	"sets":      nil,
	"fair":      nil,
}

// acquireIn acquires a lock in a mode of answersModes.
func acquireIn(ctx context.Context, l Leases, mode, key string) (*dblock.Lock, error) {
	switch mode {
	case "try":
		return l.TryAcquire(ctx, key)
	case "sets":
		return l.AcquireAll(ctx, []string{key, key + "/b", key + "/c"})
	}
	return l.Acquire(ctx, key, answersModes[mode]...)
}

// RunAnswers replaces the server's answers while leases of each mode are in use.
func (e Lease) RunAnswers(t *testing.T) {
	var users []answers.User
	for mode := range answersModes {
		users = append(users, answers.User{Name: mode, Use: func(ctx context.Context, x *answers.Trial) error {
			return e.use(ctx, x, mode)
		}})
	}
	answers.Run(t, e.Kind, users)
}

func (e Lease) use(ctx context.Context, x *answers.Trial, mode string) error {
	var l Leases
	var closePool func()
	open := func(ctx context.Context) (err error) {
		o := LeaseOptions{TTL: answers.TTL, Poll: 20 * time.Millisecond, Fair: mode == "fair"}
		l, closePool, err = e.OpenOn(ctx, x.DSN, &faultconn.Dialer{}, o)
		return err
	}
	if err := x.Open(ctx, open); err != nil {
		return err
	}
	defer closePool()
	suite.Crowd(x.Crowd, func(i int) {
		for range x.Crowd - 1 {
			e.acquireAndRelease(ctx, x, l, mode, i)
		}
	})
	if _, err := l.Held(ctx); err != nil {
		x.Returned(err)
	}
	x.Heal()
	key := x.Key
	if x.Lied {
		key += "/again"
	}
	err := x.Again(ctx, "acquiring", func(ctx context.Context) error {
		lock, err := acquireIn(ctx, l, mode, key)
		if err == nil {
			err = lock.Release(ctx)
		}
		return err
	})
	if !x.Lied {
		err = errors.Join(err, x.IsFree(ctx))
	}
	x.Close(ctx, l.Close)
	return err
}

// acquireAndRelease uses one lock; caller 0 guards a transaction with it, caller 1 moves its end,
// caller 3 has another key.
func (e Lease) acquireAndRelease(ctx context.Context, x *answers.Trial, l Leases, mode string, caller int) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	key := x.Key
	if caller == 3 && mode != "sets" {
		key += "/other"
	}
	lock, err := acquireIn(ctx, l, mode, key)
	if err != nil {
		x.Returned(err)
		return
	}
	switch {
	case caller == 0 && mode != "shared":
		err := e.Guarded(ctx, l, lock, "SELECT 1", func() {})
		if err != nil && ctx.Err() == nil && lock.Context().Err() == nil {
			x.Returned(err)
		}
	case caller == 1:
		x.Returned(lock.ExpireIn(ctx, time.Minute))
	}
	x.Returned(lock.Release(context.WithoutCancel(ctx)))
}

// RunAnswers replaces the server's answers while rows are locked.
func (r RowLocks) RunAnswers(t *testing.T) {
	answers.Run(t, r.Kind, []answers.User{{Name: "rows", Use: r.use}})
}

func (r RowLocks) use(ctx context.Context, x *answers.Trial) error {
	for _, statement := range []string{
		"CREATE TABLE IF NOT EXISTS seat (id BIGINT PRIMARY KEY, sold INT NOT NULL)",
		"DELETE FROM seat", "INSERT INTO seat VALUES (1, 0), (2, 0), (3, 0)",
	} {
		if _, err := x.DB.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	begin, closePool, err := r.Open(x.DSN, 4, sql.LevelReadCommitted)
	if err != nil {
		return err
	}
	defer closePool()
	once := func(ctx context.Context, told func(error)) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		tx, err := begin(ctx)
		if err != nil {
			return err // the driver's
		}
		err = tx.LockRow(ctx, "seat", "id", 1, dblock.RowLock{Wait: dblock.WaitAtMost(r.Bound)})
		told(err)
		if err == nil {
			_, err = tx.LockRows(ctx, "seat", "id", []int64{1, 2, 3}, dblock.RowLock{Wait: dblock.SkipLocked()})
			told(err)
		}
		if err == nil {
			_, err = tx.Claim(ctx, dblock.RowLock{}, 1, "SELECT id FROM seat ORDER BY id")
			told(err)
		}
		if err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx)
	}
	for range x.Crowd {
		_ = once(ctx, x.Returned)
	}
	x.Heal()
	return x.Again(ctx, "locking rows", func(ctx context.Context) error { return once(ctx, func(error) {}) })
}
