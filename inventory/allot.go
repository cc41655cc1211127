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
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// allotmentKey is the lease of a bucket's process.
func allotmentKey(bucket int32) string {
	return fmt.Sprintf("dblock allotment %d", bucket-driver.FirstAllotment)
}

// maxAllotments is how many processes can have one at once.
const maxAllotments = 1 << 16

// allotments are this process's. An allotment is a bucket of its own for each process, which takes
// units out of the shared stock many at a time and then sells them without touching its row. It
// holds a lease for its bucket's number: the process that gets that lease, when this one is gone,
// may give its units back. Nothing depends on it: an order that finds nothing else left locks all
// rows of an SKU, allotments too, and is sold from them.
type allotments struct {
	driver driver.Driver
	retry  *retrier
	cache  *skuCache
	calls  *calls
	units  int64 // Options.Allotment

	number atomic.Int32                // this process's bucket; 0: it has none
	lock   atomic.Pointer[dblock.Lock] // of own
	seeks  atomic.Bool                 // a bucket is sought

	mu     sync.Mutex // of locker, and never held while a statement runs
	locker dblock.Locker

	later later[driver.Units] // what could not be given back, without its quantity
}

// errSeeking is for a batch that comes while a bucket is sought: it does without.
var errSeeking = errors.New("inventory: this process has no allotments yet")

// bucket returns the bucket of this process, which is another one when its lease was lost. It is
// sought in the background: on a slow server a batch could not wait for that to end, and would
// begin it anew each time.
func (a *allotments) bucket(ctx context.Context) (int32, error) {
	if lock := a.lock.Load(); lock != nil && lock.Context().Err() == nil {
		return a.number.Load(), nil
	}
	if a.seeks.Swap(true) {
		return 0, errSeeking
	}
	type bucket struct {
		number int32
		err    error
	}
	found := make(chan bucket, 1)
	a.calls.background(func(ctx context.Context) {
		defer a.seeks.Store(false)
		ctx, cancel := context.WithTimeout(ctx, a.retry.timeout)
		defer cancel()
		number, err := a.seek(ctx)
		found <- bucket{number, err}
	})
	select {
	case b := <-found:
		return b.number, b.err
	case <-ctx.Done():
		return 0, ctxerr.Of(ctx)
	}
}

// seek gets a bucket for this process. A number whose lease is busy is passed over.
func (a *allotments) seek(ctx context.Context) (int32, error) {
	a.number.Store(0)
	if lost := a.lock.Swap(nil); lost != nil { // until it is released the Locker waits for it
		_ = lost.Release(ctx)
	}
	locker, err := a.open(ctx)
	if err != nil {
		return 0, err
	}
	for n := range int32(maxAllotments) {
		bucket := driver.FirstAllotment + n
		lock, err := locker.TryAcquire(ctx, allotmentKey(bucket))
		if err == nil {
			a.number.Store(bucket)
			a.lock.Store(lock)
			return bucket, nil
		}
		if ctx.Err() != nil || !errors.Is(err, dblock.ErrNotAcquired) && !sqlerr.IsContended(err) {
			return 0, err
		}
	}
	return 0, fmt.Errorf("inventory: %d processes have allotments: there is no number for another one", maxAllotments)
}

// open returns the Locker, made when it is first needed. That takes Options.Timeout at most, and
// ends with Close.
func (a *allotments) open(parent context.Context) (dblock.Locker, error) {
	a.mu.Lock()
	locker := a.locker
	a.mu.Unlock()
	if locker != nil {
		return locker, nil
	}
	ctx, cancel := context.WithTimeout(parent, a.retry.timeout)
	defer cancel()
	defer context.AfterFunc(a.calls.ending, cancel)()
	made, err := a.driver.Locker(ctx)
	if err != nil {
		return nil, a.unleased(parent, ctx, err)
	}
	a.mu.Lock()
	closed := a.calls.isClosed()
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
func (a *allotments) unleased(parent, ctx context.Context, err error) error {
	switch {
	case a.calls.isClosed():
		return dblock.ErrClosed
	case ctx.Err() == nil, errors.Is(err, dblock.ErrOutcomeUnknown), errors.Is(err, dblock.ErrUnavailable):
		return err
	}
	return outOfTime(parent, false, sqlerr.Busy, err)
}

// refill takes units for a batch of one SKU, and as many more as are allotted at once. False: there
// are not enough, or it took too long: a batch has Options.Timeout, and can do without.
func (a *allotments) refill(ctx context.Context, sku string, asked int64) bool {
	ctx, cancel := context.WithTimeout(ctx, a.retry.timeout/4)
	defer cancel()
	bucket, err := a.bucket(ctx)
	if err != nil {
		return false
	}
	left, err := a.driver.Allot(ctx, sku, bucket, max(asked, a.units))
	if err != nil || left == 0 {
		return false
	}
	a.cache.noteLeft(sku, left)
	return left >= asked
}

// returnUnits moves the units of an allotment to where all processes sell from. False: another
// transaction has one of both rows locked.
func (a *allotments) returnUnits(ctx context.Context, units driver.Units) (free bool, err error) {
	err = a.retry.do(ctx, attempt{}, func(ctx context.Context, _ attempt) error {
		free = false
		return a.driver.Adjust(ctx, func(tx driver.AdjustTx) (commit bool, err error) {
			have, err := tx.LockStock(ctx, units.SKU, false)
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
		return false, a.retry.explain(err, fmt.Sprintf("giving back the allotment of %q", units.SKU))
	}
	return free, nil
}

// allotted returns what is in the allotments of all processes.
func (a *allotments) allotted(ctx context.Context) (all []driver.Units, err error) {
	err = a.retry.do(ctx, attempt{}, func(ctx context.Context, _ attempt) (err error) {
		all, err = a.driver.Allotted(ctx)
		return err
	})
	return all, err
}

// sweep gives back what processes have left behind that are gone. What is locked or
// refused, and a bucket whose lease is busy, stops no other: it comes later.
func (a *allotments) sweep(ctx context.Context) error {
	all, err := a.allotted(ctx)
	if err != nil {
		return a.retry.explain(err, "sweep of allotments")
	}
	tried := a.later.tried()
	all = slices.DeleteFunc(all, func(u driver.Units) bool {
		ready, known := tried[bare(u)]
		return known && !ready
	})
	if len(all) == 0 {
		return nil
	}
	locker, err := a.open(ctx)
	if err != nil {
		return a.retry.explain(err, "sweep of allotments")
	}
	var failed []error
	for len(all) > 0 && (err == nil || isOfOne(err)) {
		n := slices.IndexFunc(all, func(u driver.Units) bool { return u.Bucket != all[0].Bucket })
		if n < 0 {
			n = len(all)
		}
		if err = a.sweepOne(ctx, locker, all[:n]); err != nil {
			failed = append(failed, err)
		}
		all = all[n:]
	}
	return errors.Join(failed...)
}

// sweepOne gives back what is in one bucket, if its process is gone.
func (a *allotments) sweepOne(parent context.Context, locker dblock.Locker, units []driver.Units) error {
	ctx, cancel := context.WithTimeout(parent, a.retry.timeout)
	defer cancel()
	lock, err := locker.TryAcquire(ctx, allotmentKey(units[0].Bucket))
	switch {
	case err == nil:
	case errors.Is(err, dblock.ErrNotAcquired) && ctx.Err() == nil: // its process is alive
		return nil
	default:
		a.postpone(units)
		return a.retry.explain(a.unleased(parent, ctx, err), "sweep of allotments")
	}
	_, err = a.returnAll(parent, units, driver.LockWait)
	return errors.Join(err, lock.Release(parent))
}

// returnAll gives back what is in one allotment. It waits at most the given time for what other
// transactions have locked, and returns what stayed locked. The error is the first one. One that
// concerns a single SKU does not stop the others.
func (a *allotments) returnAll(ctx context.Context, all []driver.Units, wait time.Duration) (locked []driver.Units, failed error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for n := 0; ; n++ {
		locked = nil
		for i, u := range all {
			free, err := a.returnUnits(ctx, u)
			switch {
			case err != nil:
				a.postpone(all[i : i+1])
				if failed == nil {
					failed = err
				}
				if !isOfOne(err) {
					return locked, failed
				}
			case free:
				a.later.done(bare(u))
			default:
				locked = append(locked, u)
			}
		}
		if all = locked; len(all) == 0 || !pause(waiting, n) {
			a.postpone(locked)
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

// isOfOne reports that an error is of one SKU, or one lease: with others it may go better.
func isOfOne(err error) bool { return errors.Is(err, ErrRejected) || sqlerr.IsContended(err) }

// close gives back what this process has not sold. If that fails, another process's Sweep
// does so.
func (a *allotments) close(ctx context.Context) error {
	a.mu.Lock() // from now on none is made: the Store is closed
	locker := a.locker
	a.locker = nil
	a.mu.Unlock()
	if locker == nil {
		return nil
	}
	var failed error
	if lock := a.lock.Load(); lock != nil {
		failed = errors.Join(a.returnBucket(ctx, a.number.Load()), lock.Release(ctx))
	}
	return errors.Join(failed, locker.Close(ctx))
}

func (a *allotments) returnBucket(ctx context.Context, own int32) error {
	const what = "giving back the allotments"
	all, err := a.allotted(ctx)
	if err != nil {
		return a.retry.explain(err, what)
	}
	all = slices.DeleteFunc(all, func(u driver.Units) bool { return u.Bucket != own })
	locked, err := a.returnAll(ctx, all, a.retry.timeout)
	if err == nil && len(locked) > 0 {
		err = a.retry.explain(outOfTime(ctx, false, sqlerr.Busy, errStayedLocked), fmt.Sprintf("%s: %q", what, locked[0].SKU))
	}
	return err
}
