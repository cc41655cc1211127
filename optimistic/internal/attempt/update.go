package attempt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// lookAgain is the advice about a write whose outcome is unknown.
const lookAgain = "no answer came: read the row again to see whether it is written"

// Driver is what Update and Do need of a database's driver.
type Driver[DB any] struct {
	IsConflict    func(error) bool                                          // the server rolled the transaction back for others' sake
	IsUnavailable func(error) bool                                          // of a statement that wrote nothing: the connection is to blame.
	ClassOf       func(ctx context.Context, err error) sqlerr.Class         // of a statement that may have written
	InTx          func(ctx context.Context, db DB, fn func(DB) error) error // runs fn in a transaction, once
	Connections   func(pool any) int                                        // of Target.Queue at most. 0: no bound.
}

// slots are those of an update that may take a lock. A nested one uses the connection that the
// outer ones leave.
func (d *Driver[DB]) slots(ctx context.Context, on Target[DB], lock func(context.Context, DB) error) *slots {
	if lock == nil || on.CallersTx || on.Queue == nil || depthOf(ctx) > 0 {
		return nil
	}
	return enter(on.Queue, d.Connections(on.Queue))
}

// Target is what the attempts run on.
type Target[DB any] struct {
	DB        DB
	Queue     any  // callers with the same one queue for a row; nil: they don't
	CallersTx bool // DB is a transaction of the caller's, or may be
	Alone     bool // a statement on DB is committed once it has run
}

// Steps are those of one attempt of Update.
type Steps[T, DB any] struct {
	Load   func(context.Context, DB) (T, error)
	Mutate func(context.Context, *T) error
	Save   func(context.Context, DB, T) (T, error)
}

// queued names a row for which callers queue.
type queued struct{ queue, row any }

// planOf makes a plan of options, and the lock that it takes.
func planOf[DB any, O Option](d *Driver[DB], on Target[DB], opts []O) (p Plan, lock func(context.Context, DB) error, err error) {
	if p, err = New(opts); err != nil {
		return p, nil, err
	}
	lock, known := p.Lock.(func(context.Context, DB) error)
	switch {
	case p.Lock != nil && !known:
		return p, nil, Invalid("EscalateAfter", "it is that of another driver")
	case p.Lock != nil && lock == nil:
		return p, nil, Invalid("EscalateAfter", "its lock is nil")
	}
	p.IsConflict = d.IsConflict
	if p.CallersTx = on.CallersTx; p.CallersTx {
		p.Lock = nil
	}
	if p.Row != nil && p.Lock != nil && on.Queue != nil {
		p.Row = queued{on.Queue, p.Row}
	} else {
		p.Row = nil
	}
	return p, lock, nil
}

// Update loads, changes and saves a row, in as many attempts as the options allow.
func Update[T, DB any, O Option](ctx context.Context, d *Driver[DB], on Target[DB], s Steps[T, DB], opts []O) (T, error) {
	var saved, none T
	p, lock, err := planOf(d, on, opts)
	if err == nil {
		err = CheckSteps(s.Load != nil, s.Mutate != nil, s.Save != nil)
	}
	if err != nil {
		return none, err
	}
	of := d.slots(ctx, on, lock)
	defer of.leave()
	err = p.Run(ctx, func(ctx context.Context, _ int, locked bool) (err error) {
		if locked {
			saved, err = s.locked(ctx, d, on.DB, lock, of)
		} else {
			saved, err = s.once(ctx, d, on.DB, on.Alone, of)
		}
		return err
	})
	if err != nil {
		return none, err
	}
	return saved, nil
}

// once takes the steps. What Save writes is committed at once if it is alone. Save may wait for a
// lock, and takes a slot.
func (s Steps[T, DB]) once(ctx context.Context, d *Driver[DB], db DB, alone bool, of *slots) (saved T, err error) {
	row, err := s.Load(ctx, db)
	if err != nil {
		return saved, d.Unwritten(ctx, err)
	}
	if err := s.Mutate(ctx, &row); err != nil {
		return saved, Stop(err)
	}
	if err := of.take(ctx); err != nil {
		return saved, err
	}
	defer of.put()
	saved, err = s.Save(of.in(ctx), db, row)
	if alone {
		return saved, d.MaybeWritten(ctx, err)
	}
	return saved, d.Unwritten(ctx, err)
}

// locked takes the steps in a transaction, under the lock. It is a function of its own because what
// a transaction keeps is on the heap: an attempt without one does not pay for that.
func (s Steps[T, DB]) locked(ctx context.Context, d *Driver[DB], db DB, lock func(context.Context, DB) error, of *slots) (saved T, err error) {
	err = d.locked(ctx, db, lock, of, func(tx DB) (err error) {
		saved, err = s.once(ctx, d, tx, false, nil)
		return err
	})
	return saved, err
}

// CheckSteps refuses functions of an update that are nil (*dblock.InvalidError).
func CheckSteps(load, mutate, save bool) error {
	switch {
	case !load:
		return Invalid("load", "it is nil")
	case !mutate:
		return Invalid("mutate", "it is nil")
	case !save:
		return Invalid("save", "it is nil")
	}
	return nil
}

// Do calls fn in a transaction of its own, in as many attempts as the options allow.
func Do[DB any, O Option](
	ctx context.Context, d *Driver[DB], on Target[DB], fn func(ctx context.Context, tx DB, attempt int) error, opts []O,
) error {
	p, lock, err := planOf(d, on, opts)
	if err != nil {
		return err
	}
	if fn == nil {
		return Invalid("fn", "it is nil")
	}
	of := d.slots(ctx, on, lock)
	defer of.leave()
	return p.Run(ctx, func(ctx context.Context, attempt int, locked bool) error {
		call := func(tx DB) error { return fn(ctx, tx, attempt) }
		if locked {
			return d.locked(ctx, on.DB, lock, of, call)
		}
		if err := of.take(ctx); err != nil {
			return err
		}
		defer of.put()
		ctx = of.in(ctx)
		return d.InTx(ctx, on.DB, call)
	})
}

// locked runs fn in a transaction, under the lock. Within an attempt that keeps others waiting it
// waits for a connection for nestedWait: the outer attempts may have all connections of the pool,
// and each may wait for one more.
func (d *Driver[DB]) locked(ctx context.Context, db DB, lock func(context.Context, DB) error, of *slots, fn func(DB) error) error {
	if err := of.take(ctx); err != nil {
		return err
	}
	defer of.put()
	began := func() bool { return true }
	within := ctx
	if depthOf(ctx) > 1 {
		var cancel context.CancelCauseFunc
		within, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		began = time.AfterFunc(nestedWait, func() { cancel(errNoConnection) }).Stop
	}
	err := d.InTx(within, db, func(tx DB) error {
		if !began() {
			return errNoConnection
		}
		if err := lock(ctx, tx); err != nil {
			return d.Unwritten(ctx, err)
		}
		return fn(tx)
	})
	if err != nil && context.Cause(within) == errNoConnection && ctx.Err() == nil {
		return errNoConnection
	}
	return err
}

// errNoConnection is of a nested update for which the pool has no connection. It is treated as a
// lock that did not come in time.
var errNoConnection = fmt.Errorf("%w: the pool has had no connection for a nested update for %v: "+
	"each of them needs one more than the outer update", dblock.ErrNotAcquired, nestedWait)

// Unwritten says what the error of a statement means that has left nothing written: it reads, or
// its transaction is rolled back.
func (d *Driver[DB]) Unwritten(ctx context.Context, err error) error {
	if isDefinite(err) || ctx.Err() != nil || !d.IsUnavailable(err) {
		return err // it may well be the caller's own
	}
	return sqlerr.Wrap(sqlerr.Unavailable, err, "a statement failed", "")
}

// MaybeWritten says what the error of a statement means that is a transaction by itself. If the
// connection is not to blame, the error may be the caller's own.
func (d *Driver[DB]) MaybeWritten(ctx context.Context, err error) error {
	if isDefinite(err) {
		return err
	}
	switch is := d.ClassOf(ctx, err); is {
	case sqlerr.Unresolved:
		err = errors.Join(ctxerr.Of(ctx), err)
		fallthrough
	case sqlerr.Unavailable:
		return sqlerr.Wrap(is, err, "a statement that writes", lookAgain)
	}
	return err
}

// Worded puts the error of a Table's own statement into the words of package dblock.
func Worded(is sqlerr.Class, known bool, what string, err error) error {
	if !known {
		return fmt.Errorf("optimistic: %s: %w", what, err)
	}
	if is == sqlerr.Retryable {
		what += ": roll back, read it again and repeat the change"
	}
	return sqlerr.Wrap(is.OfHost(), err, what, lookAgain)
}
