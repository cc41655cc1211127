package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// inTx calls a handler in a transaction, which its context has.
func (r *attempt) inTx(ctx context.Context, handle func(context.Context) error) error {
	r.rollback() // of a middleware that calls it again
	tx, within, err := r.beginTx(ctx)
	if err != nil {
		return err
	}
	done := false
	defer func() { // if handle panics, too: whatever a middleware makes of that, nothing half done is committed
		if !done {
			r.rollback()
		}
	}()
	if err := r.starts(); err != nil {
		return err
	}
	err = r.timed(context.WithValue(within, txKey{}, tx), handle)
	done = err == nil
	return err
}

// beginTx begins the transaction of a job, for which it waits no longer than the job's time. It
// then records that the attempt begins, if that has to be. So no attempt counts that got no
// connection. The transaction ends with txCtx, which rollback ends.
func (r *attempt) beginTx(ctx context.Context) (tx any, txCtx context.Context, err error) {
	txCtx, r.free = context.WithCancel(ctx)
	inTime := func() bool { return true }
	if limit := r.limit(); limit >= 0 {
		inTime = time.AfterFunc(limit, r.free).Stop
	}
	var first *driver.Position
	if r.state == attemptWaits && r.job.recordsBeginning() {
		place := r.job.position()
		first = &place
	}
	tx, w, got, err := r.h.begin(txCtx, r.job.claim.owner.inc.ID, first)
	if err == nil && got == driver.BeginRecorded {
		r.tx = w
	}
	r.job.begun = r.job.begun || first != nil && err == nil && got != driver.BeginLocked
	switch {
	case !inTime() && err == nil:
		err = &putOff{beginningTx, beginAgain, context.DeadlineExceeded}
	case err != nil:
		err = &putOff{beginningTx, beginAgain, err}
	case got == driver.BeginLocked:
		err = &putOff{recordingABeginning, beginAgain, fmt.Errorf("%w: the row of job %v is locked", dblock.ErrBusy, r.info.ID)}
	case got == driver.BeginRefused: // to be refused, and counted, with the others of its claim
		r.state = attemptRefused
		err = &dblock.LostError{Key: r.w.o.Queue, Reason: dblock.ReasonEvicted}
	default:
		return tx, txCtx, nil
	}
	r.rollback()
	r.free()
	return tx, txCtx, err
}

const beginningTx = "beginning a transaction for a job"

// timed calls a handler that has its transaction, and whose time begins now. The transaction ends
// with that time.
func (r *attempt) timed(txCtx context.Context, handle func(context.Context) error) error {
	limit := r.limit()
	if limit < 0 {
		return handle(txCtx)
	}
	ctx, cancel := context.WithTimeoutCause(txCtx, limit, ErrTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, r.free)()
	err := handle(ctx)
	r.timedOut = context.Cause(ctx) == ErrTimeout
	if err == nil && r.timedOut {
		err = fmt.Errorf("queue: the job's transaction was rolled back, as its context had ended: %w", ErrTimeout)
	}
	return err
}

// putOff is no fault of the handler's: its transaction could not begin, or its job could not end.
// The job is run again after a while.
type putOff struct {
	doing string
	again time.Duration // about so long
	err   error
}

func (e *putOff) Error() string { return fmt.Sprintf("queue: %s: %v", e.doing, e.err) }

func (e *putOff) Unwrap() error { return e.err }

// endAgain is about how long a job waits if another transaction has a row locked that its end
// needs.
const endAgain = 250 * time.Millisecond

// rollback gives up what the handler has written, and its connection.
func (r *attempt) rollback() {
	if r.tx == nil {
		return
	}
	r.tx.Rollback(context.Background())
	r.tx = nil
	r.free()
}
