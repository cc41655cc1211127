package queue

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// A job that another transaction keeps from being ready is locked. To find it among others the
// server waits several times, for a second each on MySQL. So its queue is stuck: the jobs of others
// are promoted without those of that queue, and its own beside them, by a goroutine, until none of
// them is locked any more.

// promoteInParts promotes jobs without a group. The queue of one that is locked is stuck, if others
// were promoted.
func (p *promoter) promoteInParts(ctx context.Context, due *driver.DueRequest, r *refusal) (promoted int, more bool, err error) {
	promoted, found, locked, err := p.promoteFound(ctx, due, r)
	p.mu.Lock()
	defer p.mu.Unlock()
	for queue, why := range locked {
		switch {
		case promoted > 0:
			p.stuck[queue] = true
		case err == nil:
			err = why
		}
	}
	return promoted, found == due.Max, err
}

// promoteFound looks for jobs and promotes them, in parts if the server refuses some. One that it
// refuses alone is put off, so that it stops no others. One that is locked is not: locked has the
// error of one of each queue.
func (p *promoter) promoteFound(
	ctx context.Context, due *driver.DueRequest, r *refusal,
) (promoted, found int, locked map[string]error, err error) {
	var jobs []driver.DueJob
	err = p.db.patiently(ctx, "looking for due jobs", func(ctx context.Context) (err error) {
		jobs, err = p.db.driver.Maintenance().DueJobs(ctx, due)
		return err
	})
	if err != nil {
		return 0, 0, nil, p.db.explain(sqlerr.Unwritten(err), "looking for due jobs")
	}
	if due.OfThese {
		rand.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] }) // each is tried once
	} else {
		slices.SortStableFunc(jobs, func(a, b driver.DueJob) int { return cmp.Compare(a.Queue, b.Queue) }) // to be parts
	}
	locked = make(map[string]error)
	err = inParts(p.db, jobs, func(jobs []driver.DueJob) error {
		var cursors []driver.DueCursor
		for _, j := range jobs {
			if locked[j.Queue] == nil || due.OfThese {
				cursors = append(cursors, j.DueCursor)
			}
		}
		if len(cursors) == 0 {
			return nil
		}
		return p.db.again(ctx, "promoting", func(ctx context.Context) error {
			n, err := p.send(ctx, &driver.PromoteRequest{Jobs: cursors, Max: len(cursors)})
			promoted += n
			return err
		})
	}, func(j driver.DueJob, why error) error {
		if p.db.driver.IsLocked(why) || p.db.classify(why) == sqlerr.Retryable {
			locked[j.Queue] = why
			return nil
		}
		r.add(j.Job, why)
		err := p.db.again(ctx, "putting off a job that the server refuses", func(ctx context.Context) error {
			return p.db.driver.Maintenance().Postpone(ctx, j.DueCursor, pace.Jitter(refusedFor))
		})
		if p.db.mayBeOfOne(err) { // the server refuses that, too
			return nil
		}
		return err
	})
	return promoted, len(jobs), locked, err
}

// tryStuck returns the queues that are stuck, and promotes the jobs of one of them beside what the
// caller does. r gets what was refused of the last one.
func (p *promoter) tryStuck(ctx context.Context, r *refusal) (stuck []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.err = cmp.Or(r.err, p.tried)
	p.tried = nil
	if p.stuck == nil {
		p.stuck = make(map[string]bool)
	}
	stuck = slices.Collect(maps.Keys(p.stuck))
	if len(stuck) == 0 || p.trying {
		return stuck
	}
	p.trying = true
	one := stuck[rand.IntN(len(stuck))]
	p.calls.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rowWaitTime)
		defer cancel()
		due := driver.DueRequest{Since: everDue, Queues: []string{one}, OfThese: true, Max: promoteStep}
		var refused refusal
		n, found, locked, err := p.promoteFound(ctx, &due, &refused)
		p.mu.Lock()
		p.trying, p.tried = false, refused.err
		if err == nil && len(locked) == 0 && found < due.Max {
			delete(p.stuck, one)
		}
		p.mu.Unlock()
		if n > 0 {
			p.announce()
		}
	})
	return stuck
}
