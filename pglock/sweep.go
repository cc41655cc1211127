package pglock

import (
	"context"
	"time"
)

// sweepStep is how many rows one statement removes at most.
const sweepStep = 500

// Sweep removes what nobody has used for so long, a step at a time along the key, so that no statement
// locks or reads much.
func (e *engine) Sweep(ctx context.Context, unused time.Duration) (removed int64, err error) {
	on := e.on(e.pool)
	for n := int64(sweepStep); n == sweepStep; removed += n {
		if n, err = e.q.SweepMembers(ctx, on, micros(unused), sweepStep); err != nil {
			return removed, err
		}
	}
	if _, err := e.q.SweepWaiters(ctx, on); err != nil {
		return removed, err
	}
	for after := ""; ; {
		keys, err := e.q.LeaseKeysAfter(ctx, on, after, sweepStep)
		if err != nil || len(keys) == 0 {
			return removed, err
		}
		n, err := e.q.SweepLeases(ctx, on, after, keys[len(keys)-1], micros(unused))
		if err != nil {
			return removed, err
		}
		removed += n
		after = keys[len(keys)-1]
	}
}
