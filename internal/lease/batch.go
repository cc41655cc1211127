package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/member"
)

// A grant belongs to one acquisition, which its handle names. So the core does not identify an
// answer by its position in a batch or by its key. It compares the handle that the database
// returned with the handle that it sent. An answer that does not match has an unknown outcome, and
// is reconciled.

// runAcquire answers the requests of one incarnation, each at its index. An error applies to the
// whole batch.
type runAcquire[A any] func(ctx context.Context, by By, asks []AcquireRequest) ([]batch.Result[A], error)

// acquire is a statement of one kind.
type acquire func(ctx context.Context, by By, asks []AcquireRequest) ([]AcquireResult, error)

func (q *requester) acquireOf(kind Kind) acquire {
	return func(ctx context.Context, by By, asks []AcquireRequest) ([]AcquireResult, error) {
		return q.Driver.Acquire(ctx, AcquireBatch{kind, by, asks})
	}
}

// byIncarnation runs one statement of a queue, or one for each incarnation if the process has just
// registered again. Requests that share an error, which one of them may have caused, are sent again
// apart.
func byIncarnation[A any](ctx context.Context, l *base, requests []acquisition, run runAcquire[A]) ([]batch.Result[A], error) {
	results := make([]batch.Result[A], len(requests))
	incs := make(map[*member.Incarnation][]int)
	for i, a := range requests {
		incs[a.inc] = append(incs[a.inc], i)
	}
	ctx, cancel := context.WithTimeout(ctx, l.bound())
	defer cancel()
	for inc, at := range incs {
		asks := make([]AcquireRequest, len(at))
		for n, i := range at {
			asks[n] = requests[i].AcquireRequest
		}
		got, err := run(ctx, By{inc.ID, inc.Heartbeat()}, asks)
		if err != nil && len(incs) == 1 {
			return nil, err
		}
		for n, i := range at {
			if err != nil {
				results[i].Err = err
			} else {
				results[i] = got[n]
			}
			if failed := results[i].Err; failed != nil && len(requests) > 1 && l.Traits.Classify(failed).MayBeOfOne() {
				results[i] = batch.Result[A]{Alone: true}
			}
		}
	}
	return results, nil
}

// sized keeps the batches of a queue so small that none takes as long as its bound: what was late
// is undone, and counts as lost for all of its requests.
type sized struct {
	mu    sync.Mutex
	limit int // 0: there is none yet
}

// after returns how many requests the next batches may have, after one of n took so long; 0: any
// number.
func (s *sized) after(n int, took, bound time.Duration, err error) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case n > 1 && (errors.Is(err, context.DeadlineExceeded) || took > bound/4):
		s.limit = n / 2
	case err == nil && n >= s.limit && took < bound/16:
		s.limit *= 2
	}
	return s.limit
}

// sizing makes the Run of a queue out of run, and bounds the batches of that queue.
func sizing[A any](
	b *base, limit func(int), run func(context.Context, []acquisition) ([]batch.Result[A], error),
) func(context.Context, []acquisition, bool) ([]batch.Result[A], error) {
	size := new(sized)
	return func(ctx context.Context, requests []acquisition, _ bool) ([]batch.Result[A], error) {
		began := b.o.Clock.Now()
		results, err := run(ctx, requests)
		limit(size.after(len(requests), b.o.Clock.Now().Sub(began), b.bound(), err))
		return results, err
	}
}

// checked runs acquire once, and checks each grant by its handle.
func checked(acquire acquire) runAcquire[AcquireResult] {
	return func(ctx context.Context, by By, asks []AcquireRequest) ([]batch.Result[AcquireResult], error) {
		got, err := acquire(ctx, by, asks)
		if err == nil {
			err = checkNumber(asks, got)
		}
		if err != nil {
			return nil, err
		}
		results := make([]batch.Result[AcquireResult], len(got))
		for i, a := range got {
			if a.Err == nil {
				a.Err = asks[i].checkGrant(a)
			}
			results[i] = batch.Result[AcquireResult]{Value: a, Err: a.Err}
		}
		return results, nil
	}
}

// eachKeyOnce sends batches that have each key once. If a request is refused, all requests like it
// are refused with it: they were in the same statement. If it is granted, the others of its key go
// into the next one, which names the holder.
func eachKeyOnce(acquire acquire) runAcquire[AcquireResult] {
	run := checked(acquire)
	return func(ctx context.Context, by By, asks []AcquireRequest) ([]batch.Result[AcquireResult], error) {
		results := make([]batch.Result[AcquireResult], len(asks))
		left := make([]int, len(asks))
		for i := range asks {
			left[i] = i
		}
		for sent := false; len(left) > 0; sent = true {
			first := make(map[string]int, len(left)) // of each key
			var now, later []int
			var requests []AcquireRequest
			for _, i := range left {
				if _, has := first[asks[i].Key]; has {
					later = append(later, i)
					continue
				}
				first[asks[i].Key] = i
				now, requests = append(now, i), append(requests, asks[i])
			}
			got, err := run(ctx, by, requests)
			if err != nil && !sent {
				return nil, err
			}
			for n, i := range now {
				if err != nil {
					results[i].Err = err
				} else {
					results[i] = got[n]
				}
			}
			left = slices.DeleteFunc(later, func(i int) bool {
				of := first[asks[i].Key]
				if err == nil && (results[of].Err != nil || results[of].Value.Token != 0 || !asks[i].isLike(asks[of])) {
					return false
				}
				results[i] = results[of]
				return true
			})
		}
		return results, nil
	}
}

// isLike reports whether two requests of one key have the same chance.
func (a AcquireRequest) isLike(b AcquireRequest) bool {
	return a.Instead == b.Instead && a.DeadMember == b.DeadMember && a.DespiteReaders == b.DespiteReaders && a.NoTickets == b.NoTickets
}

// CheckKeys refuses a batch that has a key more than once.
func CheckKeys(asks []AcquireRequest) error {
	if len(asks) == 1 {
		return nil
	}
	keys := make(map[string]bool, len(asks))
	for _, a := range asks {
		if keys[a.Key] {
			return fmt.Errorf("dblock: a batch has the key %q more than once; nothing was sent", a.Key)
		}
		keys[a.Key] = true
	}
	return nil
}

// checkNumber refuses another number of results than there are asks.
func checkNumber[A any](asks []AcquireRequest, results []A) error {
	if len(asks) != len(results) {
		return fmt.Errorf("%w: %d answers came to %d requests", dblock.ErrOutcomeUnknown, len(results), len(asks))
	}
	return nil
}

// checkGrants refuses the results of a set if one of them is not of the set.
func checkGrants(asks []AcquireRequest, results []AcquireResult) error {
	if err := checkNumber(asks, results); err != nil {
		return err
	}
	for i, a := range results {
		if err := asks[i].checkGrant(a); err != nil {
			return err
		}
		if (a.Token == 0) != (results[0].Token == 0) {
			return fmt.Errorf("%w: a part of a set was granted, up to %q", dblock.ErrOutcomeUnknown, asks[i].Key)
		}
	}
	return nil
}

// checkGrant refuses a grant of another acquisition.
func (a AcquireRequest) checkGrant(got AcquireResult) error {
	if got.Token == 0 || got.Handle == a.Handle {
		return nil
	}
	return fmt.Errorf("%w: lock %q: the answer grants it to the handle %v, not to %v; it is released if it was granted",
		dblock.ErrOutcomeUnknown, a.Key, got.Handle, a.Handle)
}
