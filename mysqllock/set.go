package mysqllock

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
)

// acquireSet is one SELECT that tells whether all are free, and one UPDATE where they are: what can't be granted as a
// whole locks nothing, for others to find it free.
func (e *leaseDriver) acquireSet(ctx context.Context, by lease.By, asks []lease.AcquireRequest) ([]lease.AcquireResult, error) {
	answers := make([]lease.AcquireResult, len(asks))
	missing, err := e.see(ctx, by, asks, answers, 0)
	if err != nil || len(missing) > 0 {
		return answers, err
	}
	for i, a := range answers {
		if a.Held && (!a.Holder.Dead || a.Holder.Member != asks[i].Gone) || a.Shared || a.MemberGone {
			return answers, nil
		}
	}
	args := []any{by.Member[:], by.Beat}
	for _, a := range asks {
		args = append(args, []byte(a.Key), a.Gone[:])
	}
	one := asks[0] // all are alike but for the key
	args = append(args, int64(len(asks)), one.Handle[:], keeper(by, one), one.Hold.Microseconds(), []byte(one.Label), one.Data)
	granted, token, err := e.change(ctx, mysqldb.AcquireSet, args)
	if err != nil {
		return nil, err
	}
	switch granted {
	case 0:
		return make([]lease.AcquireResult, len(asks)), nil
	case int64(len(asks)):
		if token != 0 {
			return counted(asks, token), nil
		}
	default:
		return nil, errUnseen
	}
	if _, err = e.see(ctx, by, asks, answers, granted); err == nil && slices.ContainsFunc(answers, refusedOne) {
		err = errUnseen
	}
	return answers, err
}

func refusedOne(a lease.AcquireResult) bool { return a.Token == 0 }

// Make makes rows that are missing and free: leases, or a semaphore of so many permits.
func (e *leaseDriver) Make(ctx context.Context, keys []string, permits int) error {
	if permits > 0 {
		return e.makeSemaphore(ctx, keys[0], permits)
	}
	return e.makeUnheld(ctx, false, slices.Sorted(slices.Values(keys)))
}

// releaseSet is one UPDATE where all of a set are ours. Where some are not any more, or are locked, a SELECT tells how many are.
func (e *leaseDriver) releaseSet(ctx context.Context, backs []lease.ReleaseRequest) ([]lease.ReleaseResult, error) {
	answers := make([]lease.ReleaseResult, len(backs))
	at := places(len(backs))
	for n := 1; ; n++ {
		var args []any
		for _, i := range at {
			args = append(args, []byte(backs[i].Key), backs[i].Handle[:])
		}
		freed, _, err := e.change(ctx, mysqldb.ReleaseSet, append(args, int64(len(at))))
		if err != nil {
			return nil, err
		}
		if freed > 0 {
			for _, i := range at {
				answers[i] = lease.ReleaseResult{Freed: true}
			}
			return answers, nil
		}
		if at, err = e.standing(ctx, backs, at, 0, answers); err != nil {
			return nil, err
		}
		if len(at) == 0 || n == passes || !again(ctx, n) {
			return answers, nil
		}
	}
}
