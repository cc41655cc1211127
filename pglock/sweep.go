package pglock

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
)

// sweepStep is how many rows one statement removes at most.
const sweepStep = 500

// Sweep removes rows that were not used for so long, a step at a time along the key, so that no
// statement locks or reads much.
func (d *leaseDriver) Sweep(ctx context.Context, unused time.Duration) (removed int64, err error) {
	if err := d.sweeps.take(ctx); err != nil {
		return 0, err
	}
	defer d.sweeps.give()
	for _, step := range []func() (int64, error){
		func() (int64, error) { return d.q.SweepMembers(ctx, d.db, postgres.ToMicros(unused), sweepStep) },
		func() (int64, error) { return d.q.SweepReaders(ctx, d.db, postgres.ToMicros(unused), sweepStep) },
		func() (int64, error) { return d.q.SweepTickets(ctx, d.db, sweepStep) },
	} {
		for n := int64(sweepStep); n == sweepStep; removed += n {
			if n, err = step(); err != nil {
				return removed, err
			}
		}
	}
	if _, err := d.q.SweepWaiters(ctx, d.db); err != nil {
		return removed, err
	}
	for after := ""; ; {
		keys, err := d.q.LeaseKeysAfter(ctx, d.db, after, sweepStep)
		if err != nil || len(keys) == 0 {
			return removed, err
		}
		last := keys[len(keys)-1]
		n, err := d.q.SweepLeases(ctx, d.db, after, last, postgres.ToMicros(unused))
		removed += n
		if err == nil {
			n, err = d.sweepShared(ctx, after, last, unused)
			removed += n
		}
		if err != nil {
			return removed, err
		}
		after = last
	}
}

// sweepShared removes keys that were shared once, in the steps of a writer: it makes itself the
// holder, and then looks for readers.
func (d *leaseDriver) sweepShared(ctx context.Context, after, last string, unused time.Duration) (removed int64, err error) {
	handle := postgres.UUID(member.NewID())
	keys, err := d.q.ClaimShared(ctx, d.db, pgdb.ClaimSharedParams{Handle: handle, AfterKey: after, UntilKey: last, OlderUs: postgres.ToMicros(unused)})
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	removed, err = d.q.SweepClaimed(ctx, d.db, keys, handle)
	if err != nil || removed == int64(len(keys)) {
		return removed, err
	}
	return removed, d.q.UnclaimShared(ctx, d.db, keys, handle)
}
