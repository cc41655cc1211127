package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// Retry runs a dead job again, with all its attempts. Its id stays the same.
//
// Errors: ErrNoJob; ErrState if it is not dead; ErrDuplicate if another job has its unique key;
// dblock.ErrBusy if another transaction has the job locked, or is taking the key; and those of the
// database.
func (q *Queue) Retry(ctx context.Context, id ID) error {
	if err := q.begin(); err != nil {
		return err
	}
	defer q.calls.Done()
	ctx, cancel := context.WithTimeout(ctx, q.o.Timeout)
	defer cancel()
	var died time.Time // as the last look found it
	for n := 0; n < moves; n++ {
		revived, locked, err := q.revive(ctx, []driver.ID{driver.ID(id)})
		for rests := 0; rests < reviveRests && (locked > 0 || q.driver.IsLocked(err)) && rest(ctx, rests); rests++ {
			revived, locked, err = q.revive(ctx, []driver.ID{driver.ID(id)})
		}
		switch {
		case err != nil:
			return err
		case locked > 0:
			return fmt.Errorf("%w: another transaction has dead job %v locked; retry when it has ended", dblock.ErrBusy, id)
		}
		r, err := q.find(ctx, id)
		switch {
		case err == nil && revived > 0:
			q.notices.announce(r.Queue)
			return nil
		case revived > 0: // whatever the look says
			q.notices.announce(driver.AnyQueue)
			return nil
		case err != nil:
			return err
		case r.State != driver.Dead:
			return fmt.Errorf("%w: %v is %v, not dead", ErrState, id, JobState(r.State))
		case r.At.Equal(died): // it was dead before this try, too
			return fmt.Errorf("%w: %q, as %v has: wait until the other job has ended, or cancel it", ErrDuplicate, r.UniqueKey, id)
		}
		died = r.At
	}
	return keptMoving(id)
}

// keptMoving is the error of a call whose job was found in another state again and again.
func keptMoving(id ID) error {
	return fmt.Errorf("%w: job %v kept changing state; retry", dblock.ErrBusy, id)
}

func (q *Queue) revive(ctx context.Context, ids []driver.ID) (revived, locked int, err error) {
	err = q.db.again(ctx, "retrying dead jobs", func(ctx context.Context) (err error) {
		return q.managing.do(ctx, func() (err error) {
			revived, locked, err = q.driver.Admin().RetryJob(ctx, ids)
			return err
		})
	})
	return revived, locked, err
}

// deadJobsLocked is the error of a call that found only dead jobs that are locked.
func deadJobsLocked(queue string) error {
	return fmt.Errorf("%w: another transaction has dead jobs of queue %q locked; retry when it has ended", dblock.ErrBusy, queue)
}

// reviveRests is how often Retry rests while the job or its unique key is locked, and Purge while
// all jobs are: about 150 ms in all.
const reviveRests = 4

const reviveStep = 200 // dead jobs that one statement retries

// RetryAll is Retry of all jobs of a queue ("": the default one) that are dead when it is called,
// the last ones first. It passes over those whose unique key another job has, or that another
// transaction has locked, and those that the server refuses to write: err is that of the first of
// these. It returns how many it retried; one that dies again is not retried again.
//
// Errors: dblock.ErrInvalid; dblock.ErrBusy, if it retried none, and some were locked; and those of
// the database; some are retried then.
func (q *Queue) RetryAll(ctx context.Context, queue string) (retried int, err error) {
	if err := q.begin(); err != nil {
		return 0, err
	}
	defer q.calls.Done()
	queue, err = queueName(queue)
	if err != nil {
		return 0, err
	}
	defer func() {
		if retried > 0 {
			q.notices.announce(queue)
		}
		if err != nil && retried > 0 {
			err = fmt.Errorf("queue: after %d dead jobs were retried: %w", retried, err)
		}
	}()
	var before time.Time // a job that dies again dies later
	var last driver.ID
	var refused, locked refusal
	for {
		var dead []driver.Record
		err := q.db.patiently(ctx, "listing dead jobs", func(ctx context.Context) (err error) {
			dead, err = q.driver.Admin().List(ctx, &driver.ListRequest{
				Queue: queue, State: driver.Dead, Before: before, BeforeID: last, Max: reviveStep,
			})
			return err
		})
		if err != nil {
			return retried, q.db.explain(sqlerr.Unwritten(err), "listing dead jobs")
		}
		if len(dead) == 0 {
			if retried == 0 && refused.err == nil {
				return 0, locked.err
			}
			return retried, refused.err
		}
		before, last = dead[len(dead)-1].At, dead[len(dead)-1].ID
		n, passed, err := q.reviveEach(ctx, dead, &refused, &locked)
		retried += n
		if passed > 0 && locked.err == nil {
			locked.err = deadJobsLocked(queue)
		}
		if err != nil {
			return retried, err
		}
	}
}

// reviveEach revives jobs: in parts, if the server refuses one of them, or one has to wait for
// another transaction. It passes over these. passed are those whose own row is locked.
func (q *Queue) reviveEach(ctx context.Context, dead []driver.Record, refused, locked *refusal) (revived, passed int, err error) {
	ids := make([]driver.ID, len(dead))
	for i, r := range dead {
		ids[i] = r.ID
	}
	err = inParts(q.db, ids, func(ids []driver.ID) error {
		n, l, err := q.revive(ctx, ids)
		revived, passed = revived+n, passed+l
		return err
	}, func(id driver.ID, why error) error {
		if q.driver.IsLocked(why) {
			locked.add(id, why)
		} else {
			refused.add(id, why)
		}
		return nil
	})
	return revived, passed, err
}

// Cancel drops a job, whatever it waits for, and a dead one, too: nothing is kept of it, but for
// its history. If a worker has the job, Cancel writes down a request, and the job is not run again,
// whatever becomes of its attempt and of its process. The worker learns of it within about a
// second, or sooner if it can be notified. Then the job is dropped if it has not begun, and else
// its handler's context ends with ErrCancelled. If the handler returns an error the job is dropped.
// With nil it is done; but one of HandleTx that has learned of it is rolled back and dropped. was
// is the state in which the job was found: JobClaimed says that it may still be completed.
//
// Errors: ErrNoJob; dblock.ErrBusy if the job kept changing state; and those of the database.
func (q *Queue) Cancel(ctx context.Context, id ID) (was JobState, err error) {
	if err := q.begin(); err != nil {
		return 0, err
	}
	defer q.calls.Done()
	return q.endWaiting(ctx, id, func(r driver.Record, x *driver.SyncBatch, p driver.Position) {
		q.dropIn(x, p, r.Attempt)
	}, func(ctx context.Context, r driver.Record) (done bool, err error) {
		if r.State == driver.Dead {
			n, err := q.driver.Maintenance().Prune(ctx, &driver.PruneRequest{Kind: driver.DeadJob, Job: r.ID})
			return n > 0, err
		}
		done, err = q.driver.Admin().RequestCancel(ctx, r.Member, r.Claim, r.ID)
		if done && err == nil {
			word := driver.Notification{Member: r.Member}
			q.notices.received(word)
			q.notices.send(word)
		}
		return done, err
	})
}

// dropIn has a batch end a job as cancelled, after that number of attempts.
func (q *Queue) dropIn(x *driver.SyncBatch, p driver.Position, attempt int16) {
	x.Completed = append(x.Completed, p)
	if q.o.History > 0 {
		x.History = append(x.History, historyOf(p, outcomeCancelled, attempt, ErrCancelled.Error()))
	}
}

// Discard makes a job that waits dead: it is kept, with this reason.
//
// Errors: ErrNoJob; ErrState if a worker has it (Cancel it), and if it is dead; dblock.ErrBusy if
// the job kept changing state; and those of the database.
func (q *Queue) Discard(ctx context.Context, id ID, reason string) error {
	if err := q.begin(); err != nil {
		return err
	}
	defer q.calls.Done()
	_, err := q.endWaiting(ctx, id, func(r driver.Record, x *driver.SyncBatch, p driver.Position) {
		x.Discarded = []driver.Discard{{Position: p, Attempt: r.Attempt, Failure: failure(errors.New(reason))}}
		x.KeepDiscarded = q.o.History > 0
	}, func(_ context.Context, r driver.Record) (bool, error) {
		return false, fmt.Errorf("%w: %v is %v, and does not wait", ErrState, id, JobState(r.State))
	})
	return err
}

// observeEnd calls the Observer for a job that was ended while it waited.
func (q *Queue) observeEnd(r driver.Record, x *driver.SyncBatch) {
	if len(x.Discarded) == 0 {
		q.cancelled(infoOf(r), ErrCancelled)
	} else if f := q.o.Observer.Discarded; f != nil {
		f(infoOf(r), errors.New(x.Discarded[0].Failure))
	}
}

// endWaiting ends a job that waits by way of a claim, which is made and ended in one transaction;
// others says what becomes of one that does not wait.
func (q *Queue) endWaiting(ctx context.Context, id ID, end func(driver.Record, *driver.SyncBatch, driver.Position),
	others func(context.Context, driver.Record) (done bool, err error),
) (JobState, error) {
	ctx, cancel := context.WithTimeout(ctx, q.o.Timeout)
	defer cancel()
	rests := 0
	for n := 0; n < moves; n++ {
		var r driver.Record
		var x *driver.SyncBatch
		var done, found bool
		try := func(waits bool) (err error) {
			if r, err = q.find(ctx, id); err != nil {
				return err
			}
			found = true
			x, done, err = q.endOnce(ctx, r, waits, end, others)
			return err
		}
		ran, err := false, error(nil)
		if rests%4 == 3 && q.driver.RowWaits() > 0 {
			ran, err = q.rowWait.try(func() error { return try(true) })
		}
		if !ran {
			err = q.managing.do(ctx, func() error { return try(false) })
		}
		switch {
		case err != nil && !found:
			return 0, err
		// It waits for a row, and does not count as one that moves. Postgres may call that a
		// cancelled statement, if the row is free in the moment at which lock_timeout ends.
		case err != nil && q.db.classify(err) == sqlerr.Busy && rest(ctx, rests):
			n--
			rests++
		case errors.Is(err, ErrNoJob):
			return 0, err
		case errors.Is(err, ErrState):
			return JobState(r.State), err
		case err != nil && q.db.classify(err) != sqlerr.Retryable:
			return JobState(r.State), q.db.explain(err, "ending a job")
		case err == nil && done:
			if x != nil {
				q.observeEnd(r, x)
			}
			return JobState(r.State), nil
		}
	}
	return 0, keptMoving(id)
}

// endOnce is one try of endWaiting. It returns what has ended a job that waited. done is false if
// the job has moved.
func (q *Queue) endOnce(ctx context.Context, r driver.Record, waits bool, end func(driver.Record, *driver.SyncBatch, driver.Position),
	others func(context.Context, driver.Record) (done bool, err error),
) (x *driver.SyncBatch, done bool, err error) {
	switch r.State {
	case driver.Completed, driver.Cancelled, driver.Discarded:
		return nil, false, fmt.Errorf("%w: %v has ended: it was %v", ErrNoJob, ID(r.ID), JobState(r.State))
	case driver.Ready, driver.Scheduled, driver.Retrying, driver.Blocked:
		p := driver.Position{Claim: q.ids.next(1)[0], Job: r.ID, Keyed: r.UniqueKey != "" || r.GroupKey != ""}
		x = &driver.SyncBatch{Member: member.NewID(), Take: &driver.Take{Claim: p.Claim, Job: r}, Closed: []driver.ID{p.Claim}, WaitsForRows: waits}
		end(r, x, p)
		got, err := q.driver.Sync(ctx, x)
		done = got.Completed+got.Discarded > 0
		if done && p.Keyed { // another one of its group may be ready now
			q.notices.announce(r.Queue)
		}
		return x, done, err
	case driver.Claimed, driver.Dead:
		done, err = others(ctx, r)
	}
	return nil, done, err
}

const purgeStep = 1000 // jobs that one statement drops

// Purge drops the dead jobs of a queue ("": the default one) that died so long ago, or longer, and
// returns how many it dropped. An age of 0 drops all. It passes over those that another transaction
// has locked.
//
// Errors: dblock.ErrInvalid; dblock.ErrBusy, if it dropped none, and some were locked; and those of
// the database; some are dropped then.
func (q *Queue) Purge(ctx context.Context, queue string, age time.Duration) (purged int, err error) {
	if err := q.begin(); err != nil {
		return 0, err
	}
	defer q.calls.Done()
	queue, err = queueName(queue)
	if err != nil {
		return 0, err
	}
	if age < 0 || age > MaxDelay {
		return 0, &dblock.InvalidError{Field: "age", Reason: fmt.Sprintf("%v is not within 0 to %v", age, MaxDelay)}
	}
	for rests := 0; ; rests++ {
		purged, err := q.purgeFree(ctx, queue, age)
		if err != nil || purged > 0 {
			return purged, err
		}
		var locked bool
		err = q.db.patiently(ctx, "looking for dead jobs", func(ctx context.Context) (err error) {
			locked, err = q.driver.Admin().AnyDead(ctx, queue, age)
			return err
		})
		switch {
		case err != nil:
			return 0, q.db.explain(sqlerr.Unwritten(err), "looking for dead jobs")
		case !locked:
			return 0, nil
		case rests == reviveRests || !rest(ctx, rests):
			return 0, deadJobsLocked(queue)
		}
	}
}

// purgeFree drops dead jobs that no other transaction has locked.
func (q *Queue) purgeFree(ctx context.Context, queue string, age time.Duration) (purged int, err error) {
	for {
		full := false
		err := q.db.inSteps(ctx, "dropping dead jobs", purgeStep, func(ctx context.Context, most int) error {
			n, err := q.driver.Maintenance().Prune(ctx, &driver.PruneRequest{Kind: driver.DeadJobs, Queue: queue, Age: age, Max: most})
			purged, full = purged+n, n == most
			return err
		})
		if err != nil || !full {
			return purged, err
		}
	}
}
