package inventory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock"
)

// sweepBatch is how many expired reservations RunSweeper takes at once.
const sweepBatch = 1000

// Sweep gives back what was held under at most limit reservations that have expired, those first that expired first, and says
// how many they were. Until it has come by, their units are for sale to nobody; nothing else depends on it.
//
// It also gives back the allotments of processes that are gone. Where there are allotments it opens a Locker of leases, which Close
// closes, also of a Store that has none itself.
//
// Errors: ErrInvalid, and of dblock ErrBusy, ErrUnavailable, ErrOutcomeUnknown (call it again), ErrSchema.
func (s *Store) Sweep(ctx context.Context, limit int) (swept int, err error) {
	if limit < 1 || limit > maxBatch {
		return 0, &InvalidError{"limit", fmt.Sprintf("%d is not within 1 to %d", limit, maxBatch)}
	}
	if err := s.sweepAllotments(ctx); err != nil {
		return 0, s.explain(err, "sweep of allotments")
	}
	var keys []string
	err = s.retry(ctx, attempt{}, func(ctx context.Context, _ attempt) (err error) {
		keys, err = s.engine.Due(ctx, limit)
		return err
	})
	if err != nil {
		return 0, s.explain(err, "sweep")
	}
	if len(keys) == 0 {
		return 0, nil
	}
	batch := make([]change, len(keys))
	for i, key := range keys {
		batch[i] = change{to: Expired, key: key}
	}
	answers, err := s.move(ctx, batch, false)
	if err != nil {
		return 0, s.explain(err, "sweep")
	}
	for _, a := range answers {
		if a.Err == nil && !a.Value.replayed { // an error: its row is gone
			swept++
		}
	}
	return swept, nil
}

// RunSweeper sweeps every so often, at least 10 ms, until ctx ends; that is its error. What fails is logged (see Options.Log)
// and tried again. It may run in every process: none waits long for another one.
func (s *Store) RunSweeper(ctx context.Context, every time.Duration) error {
	if every < minTimeout {
		return &InvalidError{"every", fmt.Sprintf("%v is shorter than %v", every, minTimeout)}
	}
	for {
		n, err := s.Sweep(ctx, sweepBatch)
		if errors.Is(err, dblock.ErrClosed) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			s.o.Log.WarnContext(ctx, "inventory: the sweep failed, and is tried again", "error", err)
		}
		if n == sweepBatch {
			continue
		}
		select {
		case <-time.After(every/2 + rand.N(every)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
