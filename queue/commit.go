package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/retry"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// conflictTries is how often a handler is run, in a transaction, that gives way to others. More of
// that would keep its place among Concurrency from jobs that could go on.
const conflictTries = 5

// runHandler runs the handler, and ends its job with its transaction, if it has one.
func (r *attempt) runHandler(ctx context.Context) error {
	if r.h.begin == nil {
		return r.call(ctx)
	}
	return retry.Run(ctx, retry.Options{Attempts: conflictTries}, r.isConflict, func() error {
		return r.settle(ctx, r.call(ctx))
	})
}

// isConflict reports that a handler has met others, and has not decided what is to become of its
// job.
func (r *attempt) isConflict(err error) bool {
	var s *snoozed
	var d *discarded
	var c *cancelled
	decided := errors.As(err, &s) || errors.As(err, &d) || errors.As(err, &c)
	return !decided && r.w.q.db.classify(err) == sqlerr.Retryable
}

// settle ends the transaction of a handler, of which those around it say err.
func (r *attempt) settle(ctx context.Context, err error) error {
	if r.tx == nil { // it was rolled back, or did not begin
		return err
	}
	defer r.rollback()
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("queue: the job's transaction was rolled back, as its context had ended: %w", context.Cause(ctx))
	}
	return r.commit(ctx)
}

// commit ends the job in the handler's transaction, and commits both.
func (r *attempt) commit(ctx context.Context) error {
	q := r.w.q
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.o.Timeout)
	defer cancel()
	began := time.Now()
	place := r.job.position()
	x := driver.SyncBatch{Member: r.job.claim.owner.inc.ID, Completed: []driver.Position{place}}
	if q.o.History > 0 {
		x.History = []driver.HistoryEntry{historyOf(place, outcomeCompleted, r.job.Attempt+1, "")}
	}
	ours, err := r.tx.End(within, &x)
	switch {
	case errors.Is(err, dblock.ErrTxEnded):
		return err
	case q.db.gaveWay(err):
		return &putOff{"ending a job in its handler's transaction", endAgain, sqlerr.Unwritten(err)}
	case err != nil:
		return q.db.explain(sqlerr.Unwritten(err), "ending a job in its handler's transaction, which was rolled back")
	case !ours:
		r.state = attemptRefused
		return &dblock.LostError{Key: r.w.o.Queue, Reason: dblock.ReasonEvicted}
	}
	err = r.tx.Commit(within)
	if err != nil && q.db.classify(err) != sqlerr.Retryable {
		err = r.clearUp(err)
	}
	if err == nil {
		r.state = attemptCommitted
		if q.o.Observer.Recorded != nil {
			q.o.Observer.Recorded(r.w.o.Queue, 1, time.Since(began))
		}
	}
	return err
}

const lookingForCommit = "looking for a job whose commit got no answer"

// clearUp finds out what became of a commit that failed, or got no answer. The job's row was to go
// with it. If the row is gone while the process has its member, the commit took place. Without the
// member, another process may have ended the job. While nothing can be learned the claim stays as
// it is; if it is lost meanwhile the rescue looks for the same row.
func (r *attempt) clearUp(failed error) error {
	q := r.w.q
	q.trouble("committing a job with its transaction", failed)
	r.rollback() // what was not committed is not to keep the row locked
	for n := 0; ; n++ {
		ctx, cancel := context.WithTimeout(context.Background(), q.o.Timeout/2)
		stand, alive := 0, false
		err := q.lookups.do(ctx, func() (err error) {
			if stand, err = q.driver.CountJobs(ctx, []driver.ID{r.job.ID}, true); err == nil && stand == 0 {
				alive, err = q.driver.Members().Exists(ctx, r.job.claim.owner.inc.ID) // in this order
			}
			return err
		})
		cancel()
		switch {
		case err == nil && stand > 0:
			return q.db.explain(sqlerr.Unwritten(failed), "committing a job with its transaction, which was rolled back")
		case err == nil && alive:
			return nil
		case err == nil:
			q.trouble(lookingForCommit, fmt.Errorf("%w: this process has lost its claims, and another one may have ended job %v of queue %q: "+
				"look for what its handler wrote", dblock.ErrOutcomeUnknown, ID(r.job.ID), r.w.o.Queue))
			r.state = attemptRefused
			return &dblock.LostError{Key: r.w.o.Queue, Reason: dblock.ReasonEvicted}
		}
		if n%restsToReport == 0 || !q.driver.IsLocked(err) {
			q.trouble(lookingForCommit, err)
		}
		if pace.Sleep(r.job.claim.owner.ctx, pace.Jitter(min(10*time.Millisecond<<min(n, 10), time.Second))) != nil {
			return fmt.Errorf("%w: no answer came to the COMMIT of a job, and it could not be looked for: %w", dblock.ErrOutcomeUnknown, failed)
		}
	}
}
