package queue

import (
	"context"
	"errors"
	"slices"

	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

const (
	promoteStep = 1000 // jobs that one statement promotes
	mostSteps   = 100  // of one call
)

// Promote has jobs be ready whose time has come, of all queues, and returns how many. Workers do so by themselves (WorkerOptions.Promote).
func (q *Queue) Promote(ctx context.Context) (promoted int, err error) {
	defer func() {
		if promoted > 0 {
			q.announce(engine.AnyQueue)
		}
	}()
	for range mostSteps {
		n, err := q.promoteStep(ctx)
		promoted += n
		if err != nil {
			return promoted, err
		}
		if n < promoteStep {
			break
		}
	}
	n, err := q.promoteGroups(ctx)
	return promoted + n, err
}

// promoteGroups has jobs come to their groups whose time has come. A group that another transaction has locked is passed over, and looked
// at again the next time.
func (q *Queue) promoteGroups(ctx context.Context) (promoted int, err error) {
	var groups []engine.Group
	err = q.within(ctx, func(ctx context.Context) (err error) {
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

// promoteApart promotes the jobs of some groups: together, or in halves if a group is locked, or has an error of its own.
func (q *Queue) promoteApart(ctx context.Context, groups []engine.Group) (promoted int, err error) {
	wait := keyWaitAgain
	if len(groups) == 1 {
		wait = keyWait
	}
	for range mostSteps {
		n := 0
		err := q.within(ctx, func(ctx context.Context) (err error) {
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

func (q *Queue) promoteStep(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, q.o.Timeout)
	defer cancel()
	n, err := q.engine.Promote(ctx, promoteStep)
	if err != nil && q.fault(err) != fault.Retry {
		return n, q.explain(err, "promoting")
	}
	return n, nil
}

// Rescue has the jobs of processes that are gone be ready again, of all queues, with one attempt more, and buries those that had none
// left. It returns how many there were of both. Workers do so by themselves (WorkerOptions.Rescue).
func (q *Queue) Rescue(ctx context.Context) (ready, dead int, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.o.Timeout)
	defer cancel()
	suspects, err := q.engine.Suspects(ctx)
	if err != nil {
		return 0, 0, q.explain(fault.NoWrite(err), "looking for those who are gone")
	}
	for _, m := range suspects {
		gone, err := q.engine.Evict(ctx, m)
		if err != nil {
			return ready, dead, q.explain(err, "looking whether a member is gone")
		}
		if !gone {
			continue
		}
		r, d, err := q.rescue(ctx, m)
		ready, dead = ready+r, dead+d
		if err != nil {
			return ready, dead, err
		}
	}
	return ready, dead, nil
}

// rescue takes the claims of one member, a few at a time.
func (q *Queue) rescue(ctx context.Context, gone member.ID) (ready, dead int, err error) {
	const failure = "its worker is gone"
	for range mostSteps {
		got, err := q.engine.Rescue(ctx, gone, failure, q.o.History > 0)
		if err != nil && q.fault(err) == fault.Retry {
			continue
		}
		if err != nil {
			return ready, dead, q.explain(err, "rescuing jobs")
		}
		ready, dead = ready+got.Ready, dead+got.Dead
		if got.Claims == 0 {
			break
		}
	}
	if ready+dead > 0 { // of a group whose job is dead the next one is ready
		q.announce(engine.AnyQueue)
	}
	if f := q.o.Observer.Rescued; f != nil && ready+dead > 0 {
		f(ready, dead)
	}
	return ready, dead, nil
}
