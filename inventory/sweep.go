package inventory

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// sweepBatch is how many expired reservations RunSweeper takes at once.
const sweepBatch = 1000

// sweeper gives back what reservations held that have expired.
type sweeper struct {
	driver     driver.Driver
	retry      *retrier
	changer    *changer
	allotments *allotments
	later      later[string] // what has expired and could not be swept
}

// sweep also reports whether there may be more that can be swept at once.
func (s *sweeper) sweep(ctx context.Context, limit int) (swept int, full bool, err error) {
	due, fresh, err := s.due(ctx, limit)
	if err != nil {
		err = s.retry.explain(err, "sweep")
	} else {
		swept, _, err = s.expire(ctx, due, 0)
	}
	return swept, len(due) == limit && (swept > 0 || fresh), errors.Join(err, s.allotments.sweep(ctx))
}

// expire gives back what reservations hold, and says how many those are. It waits at most so long
// for rows that are locked: busy is the error of one whose rows stayed locked. err is that of the
// first that was refused, or that there is no answer.
func (s *sweeper) expire(ctx context.Context, due []driver.Due, wait time.Duration) (swept int, busy, err error) {
	ends := make([]error, len(due))
	var all sync.WaitGroup
	var n atomic.Int64
	for i, d := range due {
		all.Go(func() {
			expired := change{to: ReservationExpired, key: d.Key, apart: apart{lines: d.Lines}, tries: s.later.times(d.Key)}
			r, err := s.changer.change(ctx, s.changer.sweeps, expired, wait)
			if err == nil && !r.Replayed {
				n.Add(1)
			}
			ends[i] = err
		})
	}
	all.Wait()
	for i, end := range ends {
		switch {
		case end == nil:
			s.later.done(due[i].Key)
		case errors.Is(end, ErrNotFound): // its row is gone
		case errors.Is(end, ErrRejected), errors.Is(end, dblock.ErrPermission):
			s.later.put(due[i].Key)
			if err == nil {
				err = end
			}
		case errors.Is(end, errStayedLocked) && sqlerr.IsContended(end), errors.Is(end, dblock.ErrConflict):
			s.later.put(due[i].Key)
			busy = end
		default:
			err = end
		}
	}
	return int(n.Load()), busy, err
}

// due reads at most limit expired reservations. Those that were not postponed before come first:
// many that stay locked, or are refused, keep others from being swept for no longer than it takes
// to try each of them once. A quarter is left to those that were postponed. fresh reports that some
// were not.
func (s *sweeper) due(ctx context.Context, limit int) (due []driver.Due, fresh bool, err error) {
	tried := s.later.tried()
	var all, again []driver.Due
	err = s.retry.do(ctx, attempt{}, func(ctx context.Context, _ attempt) (err error) {
		all, err = s.driver.Due(ctx, nil, limit+len(tried))
		return err
	})
	for _, d := range all {
		switch ready, known := tried[d.Key]; {
		case !known:
			due = append(due, d)
		case ready:
			again = append(again, d)
		}
	}
	due = due[:min(len(due), limit-min(len(again), limit/4))]
	return append(due, again[:min(len(again), limit-len(due))]...), len(due) > 0, err
}
