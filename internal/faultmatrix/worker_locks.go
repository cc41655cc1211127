package faultmatrix

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock"
)

const (
	leaseKeys   = 2
	sessionKey  = "session"
	controlKey  = "control-lock"
	controlHang = "control-hang"
)

func leaseKey(n int) string { return fmt.Sprint("lock-", n) }

// acquire tries or waits for a key of a manager.
func (w *worker) acquire(o *op, l dblock.Locker) (lock *dblock.Lock) {
	try := rand.IntN(2) == 0
	_ = w.call(o, callLimit, func(ctx context.Context) (err error) {
		if try {
			lock, err = l.TryAcquire(ctx, o.Key)
		} else {
			lock, err = l.Acquire(ctx, o.Key)
		}
		if err == nil {
			if f, has := lock.Fence(); has {
				o.Token = f.Token
			}
		}
		return err
	})
	return lock
}

// useLease acquires a key, writes under its guard, and releases. At times an operator releases it
// first: then the guard has to refuse a second write.
func (w *worker) useLease() {
	grant := op{Kind: opGrant, ID: w.newID(), Key: leaseKey(rand.IntN(leaseKeys))}
	lock := w.acquire(&grant, w.c.leases)
	if lock == nil {
		return
	}
	enter := op{Kind: opEnter, ID: grant.ID, Key: grant.Key, Begin: uptime()}
	w.log.note(enter)
	w.writeGuarded(lock, grant)
	enter.Kind, enter.End = opLeave, min(uptime(), trustedUntil(lock))
	w.log.note(enter)
	if rand.IntN(4) == 0 {
		force := op{Kind: opCall, Key: grant.Key}
		err := w.call(&force, callLimit, func(ctx context.Context) error {
			return w.c.operator.ForceRelease(ctx, grant.Key, grant.Token)
		})
		if err == nil {
			time.Sleep(rand.N(30 * time.Millisecond))
			w.writeGuarded(lock, grant)
		}
	}
	w.release(lock, grant.Key)
}

func (w *worker) release(lock *dblock.Lock, key string) error {
	release := op{Kind: opCall, Key: key}
	return w.call(&release, callLimit, lock.Release)
}

// trustedUntil is until when a process counts on its lock, by uptime.
func trustedUntil(lock *dblock.Lock) time.Duration { return uptime() + time.Until(lock.ValidUntil()) }

// writeGuarded adds 1 to the value of a key, in a transaction that the lock guards.
func (w *worker) writeGuarded(lock *dblock.Lock, grant op) {
	o := op{Kind: opWrite, ID: w.newID(), Key: grant.Key, Token: grant.Token}
	_ = w.call(&o, callLimit, func(ctx context.Context) error {
		return w.c.guarded(ctx, lock, func(ctx context.Context, tx querier) (err error) {
			if o.Was, err = tx.one(ctx, fmt.Sprintf("SELECT v FROM matrix_value WHERE k = '%s'", o.Key)); err == nil {
				o.Now = o.Was + 1
				err = tx.exec(ctx, fmt.Sprintf("UPDATE matrix_value SET v = %d WHERE k = '%s'", o.Now, o.Key))
			}
			if err == nil {
				writing := o
				writing.Kind, writing.Limit = opWriting, 0
				w.log.note(writing)
				err = tx.exec(ctx, fmt.Sprintf("INSERT INTO matrix_write (id) VALUES ('%s')", o.ID))
			}
			if err != nil {
				err = fmt.Errorf("%w: %w", errFunc, err)
			}
			return err
		})
	})
}

// enterUnasked is the control of exclusion, fences and guarded writes: it enters though it was
// refused, numbers its grants by itself, and reads and writes without a guard.
func (w *worker) enterUnasked() {
	grant := op{Kind: opGrant, Control: true, ID: w.newID(), Key: controlKey}
	lock := w.acquire(&grant, w.c.leases)
	numbered := grant
	numbered.Key, numbered.Token, numbered.Outcome, numbered.Limit = "control-fence", w.ids.Load(), done, 0
	w.log.note(numbered)
	enter := op{Kind: opEnter, Control: true, ID: grant.ID, Key: controlKey, Begin: uptime()}
	w.log.note(enter)
	o := op{Kind: opWrite, Control: true, ID: w.newID(), Key: controlKey, Token: grant.Token}
	_ = w.call(&o, callLimit, func(ctx context.Context) error {
		if err := w.c.pool.QueryRowContext(ctx, "SELECT v FROM matrix_value WHERE k = '"+controlKey+"'").Scan(&o.Was); err != nil {
			return errors.Join(errFunc, err)
		}
		time.Sleep(rand.N(10 * time.Millisecond))
		o.Now = o.Was + 1
		_, err := w.c.pool.ExecContext(ctx, fmt.Sprintf("UPDATE matrix_value SET v = %d WHERE k = '%s'", o.Now, controlKey))
		if err == nil {
			_, err = w.c.pool.ExecContext(ctx, fmt.Sprintf("INSERT INTO matrix_write (id) VALUES ('%s')", o.ID))
		}
		if err != nil {
			err = fmt.Errorf("%w: %w", dblock.ErrOutcomeUnknown, err)
		}
		return err
	})
	enter.Kind, enter.End = opLeave, uptime()
	w.log.note(enter)
	if lock != nil {
		_ = w.release(lock, controlKey)
	}
}

// useSession holds a session lock for a moment. Its release says whether it was held all the time.
func (w *worker) useSession() {
	o := op{Kind: opCall, Key: sessionKey}
	lock := w.acquire(&o, w.c.sessions)
	if lock == nil {
		return
	}
	section := op{Kind: opSection, ID: w.newID(), Key: sessionKey, Begin: uptime()}
	time.Sleep(rand.N(20 * time.Millisecond))
	section.End = uptime()
	if err := w.release(lock, sessionKey); err == nil {
		w.log.note(section)
	}
}

// leakControl acquires keys and never releases them.
func (w *worker) leakControl(ctx context.Context) {
	for ctx.Err() == nil {
		o := op{Kind: opCall, Control: true, Key: "control-leak-" + w.newID()}
		w.acquire(&o, w.c.leases)
		time.Sleep(200 * time.Millisecond)
	}
}

// holdForHang keeps the key that hangControl waits for.
func (w *worker) holdForHang(ctx context.Context) {
	for ctx.Err() == nil {
		lock, err := w.c.operator.Acquire(ctx, controlHang)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		select {
		case <-ctx.Done():
		case <-lock.Context().Done():
		}
		_ = lock.Release(context.Background())
	}
}

// hangControl waits for a key that stays held, without the deadline that it should have.
func (w *worker) hangControl(ctx context.Context) {
	for ctx.Err() == nil {
		o := op{Kind: opCall, Control: true, Key: controlHang, Limit: callLimit, Begin: uptime()}
		w.hangSince.Store(int64(w.active()))
		lock, err := w.c.leases.Acquire(ctx, controlHang)
		o.End, o.Outcome = uptime(), outcomeOf(err)
		w.log.note(o)
		if err == nil {
			_ = lock.Release(context.Background())
		}
	}
}

// hangs tells whether the call of hangControl has taken too long by now.
func (w *worker) hangs() bool {
	const more = 200 * time.Millisecond // a pause may be noted late
	return w.active()-time.Duration(w.hangSince.Load()) > callLimit+slack+more
}
