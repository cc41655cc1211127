package inventory

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// sweepBatch is how many expired reservations RunSweeper takes at once.
const sweepBatch = 1000

// Sweep gives back what was held under at most limit reservations, 1 to 8,192, that have expired,
// those first that expired first, and says how many they were. Until then their units are not for sale; nothing
// else depends on it.
//
// One that the database refuses does not stop the others: Sweep goes on, returns how many it has
// swept and the error ErrRejected of the first that was refused, and comes back to that later,
// after a minute at most. One that another transaction has locked comes later, too.
//
// Then it gives back the allotments of processes that are gone. Those that are locked or refused
// come later in the same way. If there are allotments, it opens a Locker of leases, which Close
// closes, also in a Store that has none itself.
//
// Errors: ErrRejected, and of dblock ErrInvalid, ErrBusy, ErrConflict, ErrUnavailable,
// ErrOutcomeUnknown (call it again), ErrSchema, ErrClosed.
func (s *Store) Sweep(ctx context.Context, limit int) (swept int, err error) {
	swept, _, err = s.sweep(ctx, limit)
	return swept, err
}

// sweep also tells whether there may be more that can be swept at once.
func (s *Store) sweep(ctx context.Context, limit int) (swept int, full bool, err error) {
	if limit < 1 || limit > maxBatch {
		return 0, false, invalid("limit", "%d is not within 1 to %d", limit, maxBatch)
	}
	leave, err := s.enter()
	if err != nil {
		return 0, false, err
	}
	defer leave()
	due, fresh, err := s.due(ctx, limit)
	if err != nil {
		err = s.explain(err, "sweep")
	} else {
		swept, err = s.expire(ctx, due, 0)
	}
	return swept, len(due) == limit && (swept > 0 || fresh), errors.Join(err, s.sweepAllotments(ctx))
}

// expire gives back what reservations hold, and says how many those are. It waits at most so long for rows that are locked. The error is
// that of the first that was refused, or that there is no answer.
func (s *Store) expire(ctx context.Context, due []driver.Due, wait time.Duration) (swept int, err error) {
	ends := make([]error, len(due))
	var all sync.WaitGroup
	var n atomic.Int64
	for i, d := range due {
		all.Go(func() {
			r, err := s.change(ctx, s.sweeps, change{to: ReservationExpired, key: d.Key, apart: apart{lines: d.Lines}}, wait)
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
		case errors.Is(end, ErrRejected):
			s.later.put(due[i].Key)
			if err == nil {
				err = end
			}
		case errors.Is(end, errStayedLocked) && sqlerr.IsContended(end), errors.Is(end, dblock.ErrConflict):
			s.later.put(due[i].Key)
		default:
			err = end
		}
	}
	return int(n.Load()), err
}

// due reads at most limit expired reservations. Those that were not postponed before come first:
// many that stay locked, or are refused, keep others from being swept for no longer than it takes
// to try each of them once. A quarter is left to those that were postponed. fresh tells that some were not.
func (s *Store) due(ctx context.Context, limit int) (due []driver.Due, fresh bool, err error) {
	tried := s.later.tried()
	var all, again []driver.Due
	err = s.retry(ctx, attempt{}, func(ctx context.Context, _ attempt) (err error) {
		all, err = s.driver.Due(ctx, limit+len(tried))
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

// later is what could not be swept, and is tried again after a while.
type later[K comparable] struct {
	mu   sync.Mutex
	keys map[K]postponed
}

type postponed struct {
	times int
	until time.Time
}

const (
	firstPostponed   = 50 * time.Millisecond // it doubles each time
	longestPostponed = time.Minute
	mostPostponed    = 100_000
)

func (l *later[K]) put(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys == nil || len(l.keys) >= mostPostponed {
		l.keys = make(map[K]postponed)
	}
	p := l.keys[key]
	p.until = time.Now().Add(min(longestPostponed, firstPostponed<<min(p.times, 16)))
	p.times++
	l.keys[key] = p
}

func (l *later[K]) done(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.keys, key)
}

// tried are those that were postponed. They are true if it is their turn again. It forgets those whose
// turn was long ago: others have swept them.
func (l *later[K]) tried() map[K]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	tried := make(map[K]bool, len(l.keys))
	for key, p := range l.keys {
		since := time.Since(p.until)
		if since > longestPostponed {
			delete(l.keys, key)
			continue
		}
		tried[key] = since >= 0
	}
	return tried
}

// now are those that are not to be tried yet.
func (l *later[K]) now() map[K]bool {
	not := l.tried()
	maps.DeleteFunc(not, func(_ K, ready bool) bool { return ready })
	for key := range not {
		not[key] = true
	}
	return not
}

// RunSweeper sweeps every so often, at least 10 ms, until ctx ends; that is its error. What fails is logged (see Options.Log)
// and tried again. It may run in every process: none waits long for another one.
func (s *Store) RunSweeper(ctx context.Context, every time.Duration) error {
	if every < minTimeout {
		return invalid("every", "%v is shorter than %v", every, minTimeout)
	}
	for {
		_, full, err := s.sweep(ctx, sweepBatch)
		if errors.Is(err, dblock.ErrClosed) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			s.o.Log.WarnContext(ctx, "inventory: the sweep failed, and is tried again", "error", err)
		}
		if full {
			continue
		}
		select {
		case <-time.After(pace.Jitter(every)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
