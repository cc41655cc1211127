package faultmatrix

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

const (
	permitKey   = "permits"
	permitLimit = 3
	sessionKey  = "session"
	controlKey  = "control-lock"
	controlHang = "control-hang"
)

// leaseKeys are those whose leases guard a value.
var leaseKeys = []string{"lock-0", "lock-1", "fair", "readers"}

// way is one way to acquire a lease.
type way struct {
	keys        []string
	mode        dblock.Mode
	permits     int
	fair, leads bool
}

var ways = []way{
	{keys: leaseKeys[:1]}, {keys: leaseKeys[1:2]}, {keys: leaseKeys[:2]}, {keys: leaseKeys[:1], leads: true},
	{keys: leaseKeys[2:3], fair: true}, {keys: leaseKeys[3:]},
	{keys: leaseKeys[3:], mode: dblock.ModeShared}, {keys: leaseKeys[3:], mode: dblock.ModeShared},
	{keys: []string{permitKey}, mode: dblock.ModePermit, permits: 1}, {keys: []string{permitKey}, mode: dblock.ModePermit, permits: 2},
}

// acquireIn acquires a lease in a way. A wait lasts until its context ends, unless the server does
// not answer, or gives a fair caller no ticket in time.
func (w *worker) acquireIn(o *op, by way) *dblock.Lock {
	o.Key, o.Mode, o.Permits = by.keys[0], by.mode, by.permits
	l := w.c.leases
	if by.fair {
		l = w.c.fair
	}
	var opts []dblock.Option
	switch by.mode {
	case dblock.ModeShared:
		opts = append(opts, dblock.WithShared())
	case dblock.ModePermit:
		opts = append(opts, dblock.WithPermits(by.permits, permitLimit))
	}
	return w.acquire(o, func(ctx context.Context, try bool) (lock *dblock.Lock, err error) {
		switch {
		case len(by.keys) > 1 && try:
			return l.TryAcquireAll(ctx, by.keys)
		case len(by.keys) > 1:
			lock, err = l.AcquireAll(ctx, by.keys)
		case try:
			return l.TryAcquire(ctx, o.Key, opts...)
		default:
			lock, err = l.Acquire(ctx, o.Key, opts...)
		}
		if ctx.Err() == nil && (errors.Is(err, dblock.ErrNotAcquired) || sqlerr.IsContended(err) && !by.fair) {
			err = fmt.Errorf("a wait ended before its context: %v", err)
		}
		return lock, err
	})
}

// acquireOf tries or waits for a key of a manager.
func (w *worker) acquireOf(o *op, l dblock.Locker) *dblock.Lock {
	return w.acquire(o, func(ctx context.Context, try bool) (*dblock.Lock, error) {
		if try {
			return l.TryAcquire(ctx, o.Key)
		}
		return l.Acquire(ctx, o.Key)
	})
}

func (w *worker) acquire(o *op, call func(ctx context.Context, try bool) (*dblock.Lock, error)) (lock *dblock.Lock) {
	try := rand.IntN(2) == 0
	_ = w.call(o, callLimit, func(ctx context.Context) (err error) {
		if lock, err = call(ctx, try); err == nil {
			if all := lock.Fences(); len(all) > 0 {
				o.Token = all[0].Token
			}
		}
		return err
	})
	return lock
}

// useLease acquires a lease in some way, uses it, and releases.
func (w *worker) useLease() {
	grant, by := op{Kind: opGrant, ID: w.newID()}, ways[rand.IntN(len(ways))]
	if by.leads {
		w.lead(grant, by.keys[0])
	} else if lock := w.acquireIn(&grant, by); lock != nil {
		w.use(lock, grant)
		_ = w.release(lock, grant.Key)
	}
}

// lead uses the lease of an Elector's first term.
func (w *worker) lead(grant op, key string) {
	e, err := dblock.NewElector(w.c.leases, key, dblock.ElectorOptions{})
	if err != nil {
		panic(err)
	}
	run := op{Kind: opCall, Key: key}
	_ = w.call(&run, 2*callLimit, func(ctx context.Context) error {
		ctx, end := context.WithCancel(ctx)
		defer end()
		return e.Run(ctx, func(ctx context.Context, term dblock.Fence) error {
			defer end()
			lock, _ := dblock.LockOf(ctx)
			grant.Key, grant.Token, grant.Outcome, grant.Begin, grant.End = key, term.Token, done, run.Begin, uptime()
			w.log.note(grant)
			w.use(lock, grant)
			return nil
		})
	})
}

// use reads or writes under the guard of a lock. At times an operator releases the lock first: then
// the guard has to refuse a second write.
func (w *worker) use(lock *dblock.Lock, grant op) {
	var entered []op
	for i, f := range lock.Fences() {
		if i > 0 { // of a set
			grant.ID, grant.Key, grant.Token, grant.Limit = fmt.Sprint(grant.ID, " and"), f.Key, f.Token, 0
			w.log.note(grant)
		}
		enter := op{Kind: opEnter, ID: grant.ID, Key: f.Key, Mode: grant.Mode, Permits: grant.Permits, Begin: uptime()}
		w.log.note(enter)
		entered = append(entered, enter)
	}
	if rand.IntN(4) == 0 { // no other caller has the key before its end, whatever becomes of the call
		const soon = 20 * time.Millisecond
		for _, expire := range entered {
			expire.Kind, expire.End = opExpire, uptime()+soon
			w.log.note(expire)
		}
		end := op{Kind: opCall, Key: grant.Key}
		_ = w.call(&end, callLimit, func(ctx context.Context) error { return lock.ExpireIn(ctx, soon) })
		time.Sleep(rand.N(40 * time.Millisecond))
	}
	switch grant.Mode {
	case dblock.ModeExclusive:
		w.writeGuarded(lock, grant)
	case dblock.ModeShared:
		w.readGuarded(lock, grant)
	case dblock.ModePermit:
		time.Sleep(rand.N(20 * time.Millisecond))
	}
	for _, leave := range entered {
		leave.Kind, leave.End = opLeave, min(uptime(), trustedUntil(lock))
		w.log.note(leave)
	}
	if grant.Mode == dblock.ModeExclusive && rand.IntN(4) == 0 {
		force := op{Kind: opCall, Key: grant.Key}
		err := w.call(&force, callLimit, func(ctx context.Context) error {
			return w.c.operator.ForceRelease(ctx, grant.Key, grant.Token)
		})
		if err == nil {
			time.Sleep(rand.N(30 * time.Millisecond))
			w.writeGuarded(lock, grant)
		}
	}
}

// release releases a lease: it returns in time though its context does not end.
func (w *worker) release(lock *dblock.Lock, key string) error {
	release := op{Kind: opCall, Key: key}
	return w.call(&release, callLimit, func(context.Context) error { return lock.Release(context.Background()) })
}

// sweep deletes keys that were unused for a second, as if that had been long. A token comes from
// the server's clock, and its row is written later in the same statement. So a key may be swept
// only if it was unused for longer than a statement lasts: else its next token could be smaller.
func (w *worker) sweep() {
	sweep := op{Kind: opCall, Key: "sweep"}
	_ = w.call(&sweep, callLimit, func(ctx context.Context) error {
		age := "UPDATE dblock_lease SET changed_at = '2000-01-01' WHERE handle IS NULL AND NOT shared AND changed_at < "
		if _, err := w.c.pool.ExecContext(ctx, age+w.c.secondAgo); err != nil {
			return errors.Join(errFunc, err)
		}
		_, err := w.c.operator.Sweep(ctx)
		return err
	})
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
			}
			return noted(ctx, tx, o, err)
		})
	})
}

// readGuarded reads the value of a key, and notes in the same transaction that it did.
func (w *worker) readGuarded(lock *dblock.Lock, grant op) {
	o := op{Kind: opRead, ID: w.newID(), Key: grant.Key, Mode: grant.Mode, Token: grant.Token}
	_ = w.call(&o, callLimit, func(ctx context.Context) error {
		return w.c.guarded(ctx, lock, func(ctx context.Context, tx querier) (err error) {
			o.Now, err = tx.one(ctx, fmt.Sprintf("SELECT v FROM matrix_value WHERE k = '%s'", o.Key))
			return noted(ctx, tx, o, err)
		})
	})
}

// noted has the transaction show whether it was committed, unless err.
func noted(ctx context.Context, tx querier, o op, err error) error {
	if err == nil {
		err = tx.exec(ctx, fmt.Sprintf("INSERT INTO matrix_write (id) VALUES ('%s')", o.ID))
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errFunc, err)
	}
	return err
}

// enterUnasked is the control of exclusion, fences and guarded writes: it enters though it was
// refused, numbers its grants by itself, and reads and writes without a guard.
func (w *worker) enterUnasked() {
	grant := op{Kind: opGrant, Control: true, ID: w.newID(), Key: controlKey}
	lock := w.acquireOf(&grant, w.c.leases)
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
	lock := w.acquireOf(&o, w.c.sessions)
	if lock == nil {
		return
	}
	section := op{Kind: opSection, ID: w.newID(), Key: sessionKey, Begin: uptime()}
	time.Sleep(rand.N(20 * time.Millisecond))
	section.End = uptime()
	release := op{Kind: opCall, Key: sessionKey}
	if err := w.call(&release, callLimit, lock.Release); err == nil {
		w.log.note(section)
	}
}

// leakControl acquires keys and never releases them.
func (w *worker) leakControl(ctx context.Context) {
	for ctx.Err() == nil {
		o := op{Kind: opCall, Control: true, Key: "control-leak-" + w.newID()}
		w.acquireOf(&o, w.c.leases)
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

// hangs reports whether the call of hangControl has taken too long by now.
func (w *worker) hangs() bool {
	const more = 200 * time.Millisecond // a pause may be noted late
	return w.active()-time.Duration(w.hangSince.Load()) > callLimit+slack+more
}
