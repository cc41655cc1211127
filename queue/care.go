package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

const (
	promoteStep = 1000 // jobs that one statement promotes
	mostSteps   = 100  // of one call

	everDue      = 100 * 365 * 24 * time.Hour
	sinceSlack   = time.Second      // jobs are committed a little later than their time
	longestSince = 10 * time.Second // and the TTL: another process may have looked last, and be gone
)

// Promote has jobs be ready whose time has come, of all queues, and returns how many. Workers do so by themselves (WorkerOptions.Promote).
func (q *Queue) Promote(ctx context.Context) (promoted int, err error) {
	defer func() {
		if promoted > 0 {
			q.announce(engine.AnyQueue)
		}
	}()
	promoted, err = q.promotePlain(ctx)
	if err != nil {
		return promoted, err
	}
	n, err := q.promoteGroups(ctx)
	return promoted + n, err
}

// promotePlain promotes jobs without a group, in the order of their times. While there is a backlog of them, jobs whose time has come since
// the last look are promoted between its steps: those that are urgent do not wait for the backlog. So they do not wait, either, where the
// first step fails, for example as it passes over more deleted rows than Options.Timeout allows for.
func (q *Queue) promotePlain(ctx context.Context) (promoted int, err error) {
	for range mostSteps {
		began := time.Now()
		n, err := q.promoteStep(ctx, everDue)
		promoted += n
		if err == nil && n < promoteStep {
			q.looked(began)
			return promoted, nil
		}
		m, failed := q.promoteRecent(ctx)
		promoted += m
		if err = errors.Join(err, failed); err != nil {
			return promoted, err
		}
	}
	return promoted, nil
}

// promoteRecent promotes jobs without a group whose time has come since the last look.
func (q *Queue) promoteRecent(ctx context.Context) (promoted int, err error) {
	began, since := time.Now(), q.member.TTL()+longestSince
	q.mu.RLock()
	if !q.promotedAt.IsZero() {
		since = min(began.Sub(q.promotedAt)+sinceSlack, since)
	}
	q.mu.RUnlock()
	promoted, err = q.promoteStep(ctx, since)
	if err == nil {
		q.looked(began)
	}
	return promoted, err
}

// looked notes when the jobs were looked at whose time had come.
func (q *Queue) looked(at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.promotedAt = at
}

// promoteGroups has jobs come to their groups whose time has come. A group that another transaction has locked is passed over, and looked
// at again the next time.
func (q *Queue) promoteGroups(ctx context.Context) (promoted int, err error) {
	var groups []engine.Group
	err = q.patiently(ctx, "looking for groups", func(ctx context.Context) (err error) {
		groups, err = q.engine.DueGroups(ctx, engine.DueLook)
		return err
	})
	if err != nil {
		return 0, q.explain(fault.NoWrite(err), "looking for groups whose jobs are due")
	}
	for some := range slices.Chunk(groups, promoteStep) {
		n, failed := q.promoteApart(ctx, some)
		promoted, err = promoted+n, errors.Join(err, failed)
	}
	return promoted, err
}

// groupWait is how long the promotion of one group waits for its row.
const groupWait = 50 * time.Millisecond

// promoteApart promotes the jobs of some groups: together, or in halves if a group is locked, or has an error of its own.
func (q *Queue) promoteApart(ctx context.Context, groups []engine.Group) (promoted int, err error) {
	wait := keyWaitAgain
	if len(groups) == 1 {
		wait = groupWait
	}
	for range mostSteps {
		n := 0
		err := q.patiently(ctx, "promoting groups", func(ctx context.Context) (err error) {
			n, err = q.engine.PromoteGroups(ctx, groups, promoteStep, wait)
			return err
		})
		locked := q.engine.IsLocked(err)
		switch is := q.fault(err); {
		case err == nil && n < promoteStep:
			return promoted + n, nil
		case err == nil:
			promoted += n
		case len(groups) > 1 && (locked || is == fault.Poison):
			half := len(groups) / 2
			a, first := q.promoteApart(ctx, groups[:half])
			b, second := q.promoteApart(ctx, groups[half:])
			return promoted + a + b, errors.Join(first, second)
		case locked || is == fault.Retry:
			return promoted, nil
		default:
			return promoted, q.explain(err, "promoting jobs of groups")
		}
	}
	return promoted, nil
}

func (q *Queue) promoteStep(ctx context.Context, since time.Duration) (n int, err error) {
	within := q.within
	if since == everDue {
		within = func(ctx context.Context, f func(context.Context) error) error {
			return q.patiently(ctx, "promoting", f)
		}
	}
	for range insertTries {
		err = within(ctx, func(ctx context.Context) (err error) {
			n, err = q.engine.Promote(ctx, since, promoteStep)
			return err
		})
		if err == nil || q.fault(err) != fault.Retry {
			break
		}
	}
	if err != nil {
		return n, q.explain(err, "promoting")
	}
	return n, nil
}

// patiently is within for statements that may have to pass over many rows that were deleted, and which the server can't clean up yet. One
// that was cut off by Options.Timeout has twice the time when it is sent again, up to mostPatience: else it would be cut off each time.
func (q *Queue) patiently(ctx context.Context, doing string, f func(context.Context) error) error {
	q.mu.RLock()
	patience := max(q.patience[doing], q.o.Timeout)
	q.mu.RUnlock()
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	err := f(within)
	switch {
	case err == nil:
		patience = 2 * time.Since(began)
	case ctx.Err() == nil && within.Err() != nil:
		patience *= 2
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.patience[doing] = min(patience, max(mostPatience, q.o.Timeout))
	return err
}
