package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// An allotment is a bucket of its own for each process, which takes units out of the shared stock many at a time and then sells
// them without touching its row. It holds a lease for its bucket's number: whoever gets that lease, when the process is gone, may give
// its units back. Nothing depends on it: whoever finds nothing else left locks all rows of an SKU, allotments too, and sells from them.

// allotmentKey is the lease of a bucket's process.
func allotmentKey(bucket int32) string {
	return fmt.Sprintf("dblock allotment %d", bucket-driver.FirstAllotment)
}

// maxAllotments is how many processes can have one at once.
const maxAllotments = 1 << 16

// allotments are this process's.
type allotments struct {
	own  *atomic.Int32               // its bucket; 0: it has none
	lock atomic.Pointer[dblock.Lock] // of own

	seeks atomic.Bool // a bucket is sought

	mu     sync.Mutex // of locker, and never held while a statement runs
	locker dblock.Locker

	later later[driver.Units] // what could not be given back, without its quantity
}

// errSeeking is for a batch that comes while a bucket is sought: it does without.
var errSeeking = errors.New("inventory: this process has no allotments yet")

// bucket returns the bucket of this process, which is another one when its lease was lost. It is sought behind the callers' backs: on a
// slow server a batch could not wait for that to end, and would begin it anew each time.
func (s *Store) bucket(ctx context.Context) (int32, error) {
	a := &s.allotments
	if lock := a.lock.Load(); lock != nil && lock.Context().Err() == nil {
		return a.own.Load(), nil
	}
	if a.seeks.Swap(true) {
		return 0, errSeeking
	}
	type bucket struct {
		number int32
		err    error
	}
	found := make(chan bucket, 1)
	s.behind(func(ctx context.Context) {
		defer a.seeks.Store(false)
		ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
		defer cancel()
		number, err := s.seek(ctx)
		found <- bucket{number, err}
	})
	select {
	case b := <-found:
		return b.number, b.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// seek gets a bucket for this process. A number whose lease is busy is passed over.
func (s *Store) seek(ctx context.Context) (int32, error) {
	a := &s.allotments
	a.own.Store(0)
	if lost := a.lock.Swap(nil); lost != nil { // until it is released the Locker waits for it
		_ = lost.Release(ctx)
	}
	locker, err := s.locker(ctx)
	if err != nil {
		return 0, err
	}
	for n := range int32(maxAllotments) {
		bucket := driver.FirstAllotment + n
		lock, err := locker.TryAcquire(ctx, allotmentKey(bucket))
		if err == nil {
			a.own.Store(bucket)
			a.lock.Store(lock)
			return bucket, nil
		}
		if ctx.Err() != nil || !errors.Is(err, dblock.ErrNotAcquired) && !sqlerr.IsContended(err) {
			return 0, err
		}
	}
	return 0, fmt.Errorf("inventory: %d processes have allotments: there is no number for another one", maxAllotments)
}

// locker returns the Locker, made when it is first needed. That takes Options.Timeout at most, and
// ends with Close.
func (s *Store) locker(parent context.Context) (dblock.Locker, error) {
	a := &s.allotments
	a.mu.Lock()
	locker := a.locker
	a.mu.Unlock()
	if locker != nil {
		return locker, nil
	}
	ctx, cancel := context.WithTimeout(parent, s.o.Timeout)
	defer cancel()
	defer context.AfterFunc(s.ending, cancel)()
	made, err := s.driver.Locker(ctx)
	if err != nil {
		return nil, s.unleased(parent, ctx, err)
	}
	a.mu.Lock()
	closed := s.ending.Err() != nil
	if a.locker == nil && !closed {
		a.locker, made = made, nil
	}
	locker = a.locker
	a.mu.Unlock()
	if made != nil { // another call was faster, or Close
		_ = made.Close(ctx)
	}
	if closed {
		return nil, dblock.ErrClosed
	}
	return locker, nil
}

// unleased is the error of a call of the Locker that may have failed because ctx, which has less
// time than its parent, has ended.
func (s *Store) unleased(parent, ctx context.Context, err error) error {
	switch {
	case s.ending.Err() != nil:
		return dblock.ErrClosed
	case ctx.Err() == nil, errors.Is(err, dblock.ErrOutcomeUnknown), errors.Is(err, dblock.ErrUnavailable):
		return err
	}
	return outOfTime(parent, false, sqlerr.Busy, err)
}

// refill takes units for a batch of one SKU, and as many more as are allotted at once. False: there are not enough, or it took too
// long: a batch has Options.Timeout, and can do without.
func (s *Store) refill(ctx context.Context, sku string, asked int64) bool {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout/4)
	defer cancel()
	bucket, err := s.bucket(ctx)
	if err != nil {
		return false
	}
	left, err := s.driver.Allot(ctx, sku, bucket, max(asked, s.o.Allotment))
	if err != nil || left == 0 {
		return false
	}
	s.seen.note(sku, left)
	return left >= asked
}

// allots tells that a batch is to be sold from this process's allotment, if there is enough.
func (s *Store) allots(orders []order) bool {
	return s.o.Allotment > 0 && !s.driver.Hooked() && orders[0].lines == nil && !orders[0].Unstocked && alike(orders)
}

// giveBack moves the units of an allotment to where all processes sell from. False: another
// transaction has one of both rows locked.
func (s *Store) giveBack(ctx context.Context, units driver.Units) (free bool, err error) {
	err = s.retry(ctx, attempt{}, func(ctx context.Context, _ attempt) error {
		free = false
		return s.driver.Adjust(ctx, func(tx driver.AdjustTx) (commit bool, err error) {
			have, err := tx.LockFreeStock(ctx, units.SKU)
			if err != nil {
				return false, err
			}
			at := slices.IndexFunc(have, func(b driver.Bucket) bool { return b.Number == units.Bucket })
			if free = at > 0 && have[0].Number == 0; !free || have[at].Left == 0 {
				return false, nil
			}
			err = tx.TakeStock(ctx, []driver.Units{{SKU: units.SKU, Bucket: units.Bucket, Qty: have[at].Left}})
			if err == nil {
				err = tx.AddStock(ctx, []driver.Units{{SKU: units.SKU, Qty: have[at].Left}})
			}
			return err == nil, err
		})
	})
	if err != nil {
		return false, s.explain(err, fmt.Sprintf("giving back the allotment of %q", units.SKU))
	}
	return free, nil
}

// allotted returns what is in the allotments of all processes.
func (s *Store) allotted(ctx context.Context) (all []driver.Units, err error) {
	err = s.retry(ctx, attempt{}, func(ctx context.Context, _ attempt) (err error) {
		all, err = s.driver.Allotted(ctx)
		return err
	})
	return all, err
}

// sweepAllotments gives back what processes have left behind that are gone. What is locked or
// refused, and a bucket whose lease is busy, stops no other: it comes later.
func (s *Store) sweepAllotments(ctx context.Context) error {
	all, err := s.allotted(ctx)
	if err != nil {
		return s.explain(err, "sweep of allotments")
	}
	not := s.allotments.later.now()
	all = slices.DeleteFunc(all, func(u driver.Units) bool { return not[bare(u)] })
	if len(all) == 0 {
		return nil
	}
	locker, err := s.locker(ctx)
	if err != nil {
		return s.explain(err, "sweep of allotments")
	}
	var failed []error
	for len(all) > 0 && (err == nil || isOfOne(err)) {
		n := slices.IndexFunc(all, func(u driver.Units) bool { return u.Bucket != all[0].Bucket })
		if n < 0 {
			n = len(all)
		}
		if err = s.sweepAllotment(ctx, locker, all[:n]); err != nil {
			failed = append(failed, err)
		}
		all = all[n:]
	}
	return errors.Join(failed...)
}

// sweepAllotment gives back what is in one bucket, if its process is gone.
func (s *Store) sweepAllotment(parent context.Context, locker dblock.Locker, units []driver.Units) error {
	ctx, cancel := context.WithTimeout(parent, s.o.Timeout)
	defer cancel()
	lock, err := locker.TryAcquire(ctx, allotmentKey(units[0].Bucket))
	switch {
	case err == nil:
	case errors.Is(err, dblock.ErrNotAcquired) && ctx.Err() == nil: // its process is alive
		return nil
	default:
		s.allotments.postpone(units)
		return s.explain(s.unleased(parent, ctx, err), "sweep of allotments")
	}
	_, err = s.giveAllBack(parent, units, driver.LockWait)
	return errors.Join(err, lock.Release(parent))
}

// giveAllBack gives back what is in one allotment. It waits at most the given time for what other
// transactions have locked, and returns what stayed locked. The error is the first one. One that
// concerns a single SKU does not stop the others.
func (s *Store) giveAllBack(ctx context.Context, all []driver.Units, wait time.Duration) (locked []driver.Units, failed error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for n := 0; ; n++ {
		locked = nil
		for i, u := range all {
			free, err := s.giveBack(ctx, u)
			switch {
			case err != nil:
				s.allotments.postpone(all[i : i+1])
				if failed == nil {
					failed = err
				}
				if !isOfOne(err) {
					return locked, failed
				}
			case free:
				s.allotments.later.done(bare(u))
			default:
				locked = append(locked, u)
			}
		}
		if all = locked; len(all) == 0 || !pause(waiting, n) {
			s.allotments.postpone(locked)
			return locked, failed
		}
	}
}

func (a *allotments) postpone(units []driver.Units) {
	for _, u := range units {
		a.later.put(bare(u))
	}
}

func bare(u driver.Units) driver.Units {
	u.Qty = 0
	return u
}

// isOfOne tells that an error is of one SKU, or one lease: with others it may go better.
func isOfOne(err error) bool { return errors.Is(err, ErrRejected) || sqlerr.IsContended(err) }

// closeAllotments gives back what this process has not sold. If that fails, another process's Sweep
// does so.
func (s *Store) closeAllotments(ctx context.Context) error {
	a := &s.allotments
	a.mu.Lock() // from now on none is made: the Store is ending
	locker := a.locker
	a.locker = nil
	a.mu.Unlock()
	if locker == nil {
		return nil
	}
	var failed error
	if lock := a.lock.Load(); lock != nil {
		failed = errors.Join(s.giveOwnBack(ctx, a.own.Load()), lock.Release(ctx))
	}
	return errors.Join(failed, locker.Close(ctx))
}

func (s *Store) giveOwnBack(ctx context.Context, own int32) error {
	const what = "giving back the allotments"
	all, err := s.allotted(ctx)
	if err != nil {
		return s.explain(err, what)
	}
	all = slices.DeleteFunc(all, func(u driver.Units) bool { return u.Bucket != own })
	locked, err := s.giveAllBack(ctx, all, s.o.Timeout)
	if err == nil && len(locked) > 0 {
		err = s.explain(outOfTime(ctx, false, sqlerr.Busy, errStayedLocked), fmt.Sprintf("%s: %q", what, locked[0].SKU))
	}
	return err
}
