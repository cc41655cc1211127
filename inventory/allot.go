package inventory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// An allotment is a bucket of its own for each process, which takes units out of the shared stock many at a time and then sells
// them without touching its row. It holds a lease for its bucket's number: whoever gets that lease, when the process is gone, may give
// its units back. Nothing depends on it: whoever finds nothing else left locks all rows of an SKU, allotments too, and sells from them.

// allotmentKey is the lease of a bucket's process.
func allotmentKey(bucket int32) string {
	return fmt.Sprintf("dblock allotment %d", bucket-engine.FirstAllotment)
}

// maxAllotments is how many processes can have one at once.
const maxAllotments = 1 << 16

// allotments are this process's.
type allotments struct {
	own  *atomic.Int32               // its bucket; 0: it has none
	lock atomic.Pointer[dblock.Lock] // of own

	seeks atomic.Bool // a bucket is sought

	mu     sync.Mutex
	locker dblock.Locker
	closed bool
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
		number, err := a.seek(ctx, s.engine)
		found <- bucket{number, err}
	})
	select {
	case b := <-found:
		return b.number, b.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// seek gets a bucket for this process.
func (a *allotments) seek(ctx context.Context, e engine.Engine) (int32, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return 0, dblock.ErrClosed
	}
	a.own.Store(0)
	if lost := a.lock.Swap(nil); lost != nil { // until it is released the Locker waits for it
		_ = lost.Release(ctx)
	}
	locker, err := a.open(ctx, e)
	if err != nil {
		return 0, err
	}
	for n := range int32(maxAllotments) {
		bucket := engine.FirstAllotment + n
		lock, err := locker.TryAcquire(ctx, allotmentKey(bucket))
		if errors.Is(err, dblock.ErrNotAcquired) {
			continue
		}
		if err != nil {
			return 0, err
		}
		a.own.Store(bucket)
		a.lock.Store(lock)
		return bucket, nil
	}
	return 0, fmt.Errorf("inventory: %d processes have allotments: there is no number for another one", maxAllotments)
}

// open returns the Locker, made when it is first needed. The mutex is held.
func (a *allotments) open(ctx context.Context, e engine.Engine) (dblock.Locker, error) {
	if a.locker == nil {
		locker, err := e.Locker(ctx)
		if err != nil {
			return nil, err
		}
		a.locker = locker
	}
	return a.locker, nil
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
	left, err := s.engine.Allot(ctx, sku, bucket, max(asked, s.o.Allotment))
	if err != nil || left == 0 {
		return false
	}
	s.seen.note(sku, left)
	return left >= asked
}

// allots tells that a batch is to be sold from this process's allotment, if there is enough.
func (s *Store) allots(orders []order) bool {
	return s.o.Allotment > 0 && !s.engine.Hooked() && orders[0].lines == nil && !orders[0].Unstocked && alike(orders)
}

// giveBack moves the units of an allotment to where everybody sells from.
func (s *Store) giveBack(ctx context.Context, units engine.Units) error {
	return s.retry(ctx, attempt{}, func(ctx context.Context, _ attempt) error {
		return s.engine.Adjust(ctx, func(tx engine.AdjustTx) (commit bool, err error) {
			have, err := tx.LockStock(ctx, units.SKU)
			if err != nil {
				return false, err
			}
			for _, b := range have {
				if b.Number == units.Bucket && b.Left > 0 {
					return moveUnits(ctx, tx, units.SKU, []engine.Units{
						{SKU: units.SKU, Qty: -b.Left}, {SKU: units.SKU, Bucket: b.Number, Qty: b.Left},
					})
				}
			}
			return false, nil
		})
	})
}

// allotted returns what is in the allotments of all processes.
func (s *Store) allotted(ctx context.Context) (all []engine.Units, err error) {
	err = s.retry(ctx, attempt{}, func(ctx context.Context, _ attempt) (err error) {
		all, err = s.engine.Allotted(ctx)
		return err
	})
	return all, err
}

// sweepAllotments gives back what processes have left behind that are gone.
func (s *Store) sweepAllotments(ctx context.Context) error {
	all, err := s.allotted(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	a := &s.allotments
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return dblock.ErrClosed
	}
	locker, err := a.open(ctx, s.engine)
	a.mu.Unlock()
	if err != nil {
		return err
	}
	for len(all) > 0 {
		bucket := all[0].Bucket
		lock, err := locker.TryAcquire(ctx, allotmentKey(bucket))
		switch {
		case err == nil:
			err = errors.Join(s.giveAllBack(ctx, all, bucket), lock.Release(ctx))
		case errors.Is(err, dblock.ErrNotAcquired): // its process is alive
			err = nil
		}
		if err != nil {
			return err
		}
		for len(all) > 0 && all[0].Bucket == bucket {
			all = all[1:]
		}
	}
	return nil
}

// giveAllBack gives back what is in one of several allotments.
func (s *Store) giveAllBack(ctx context.Context, all []engine.Units, bucket int32) error {
	for _, u := range all {
		if u.Bucket != bucket {
			continue
		}
		if err := s.giveBack(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// closeAllotments gives back what this process has not sold. Where that fails, another process's Sweep does so.
func (s *Store) closeAllotments(ctx context.Context) error {
	a := &s.allotments
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.locker == nil {
		a.closed = true
		return nil
	}
	a.closed = true
	var failed error
	if own := a.own.Load(); own != 0 {
		all, err := s.allotted(ctx)
		if err == nil {
			err = s.giveAllBack(ctx, all, own)
		}
		if err != nil {
			failed = s.explain(err, "giving back the allotments")
		}
		failed = errors.Join(failed, a.lock.Load().Release(ctx))
	}
	return errors.Join(failed, a.locker.Close(ctx))
}
