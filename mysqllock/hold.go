package mysqllock

import (
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// ExpireIn is one UPDATE, and one SELECT more if it changed nothing: rows may be locked, or not
// ours any more.
func (d *leaseDriver) ExpireIn(ctx context.Context, backs []lease.ReleaseRequest, in time.Duration) (bool, error) {
	for n := 1; ; n++ {
		rows, err := d.expire(ctx, backs, in)
		if err != nil || rows > 0 {
			return rows > 0, err
		}
		ours, err := d.Holding(ctx, backs)
		if err != nil || slices.Contains(ours, false) {
			return false, err
		}
		if n == passes || !again(ctx, n) {
			return false, errLocked
		}
	}
}

// expire ends all of an acquisition, or nothing if a row of it is locked.
func (d *leaseDriver) expire(ctx context.Context, backs []lease.ReleaseRequest, in time.Duration) (rows int64, err error) {
	b := backs[0]
	if b.Mode == dblock.ModeExclusive {
		var args []any
		for _, b := range backs {
			args = append(args, []byte(b.Key), b.Handle[:])
		}
		rows, _, err = d.change(ctx, mysqldb.ExpireLeases, append(args, int64(len(backs)), in.Microseconds()))
		return rows, err
	}
	var slots []int32
	if b.Mode == dblock.ModePermit {
		ours, err := d.permits.slots(ctx, backs)
		if err != nil {
			return 0, err
		}
		for _, r := range ours {
			slots = append(slots, r.Slot)
		}
	}
	err = d.once(ctx, func(on mysqldb.DBTX) (err error) {
		if b.Mode == dblock.ModePermit {
			rows, err = d.q.ExpirePermits(ctx, on, mysqldb.ExpirePermitsParams{
				LeaseKey: []byte(b.Key), Slots: slots, Token: b.Token, Handle: b.Handle[:], HoldUs: in.Microseconds(),
			})
			return err
		}
		rows, err = d.q.ExpireShared(ctx, on, mysqldb.ExpireSharedParams{
			LeaseKey: []byte(b.Key), Token: b.Token, Handle: b.Handle[:], HoldUs: in.Microseconds(),
		})
		return err
	})
	return rows, err
}

// Holding reports which acquisitions still hold their leases.
func (d *leaseDriver) Holding(ctx context.Context, backs []lease.ReleaseRequest) ([]bool, error) {
	keys := keysOf(backs)
	type handled struct {
		key    string
		handle lease.Handle
	}
	held := make(map[handled]bool, len(backs))
	err := sqlerr.Unwritten(d.once(ctx, func(on mysqldb.DBTX) error {
		clear(held)
		switch backs[0].Mode {
		case dblock.ModeShared:
			rows, err := d.q.HoldingReaders(ctx, on, keys, handlesIn(backs))
			for _, r := range rows {
				held[handled{string(r.LeaseKey), lease.Handle(r.Handle)}] = true
			}
			return err
		case dblock.ModePermit:
			rows, err := d.q.HoldingPermits(ctx, on, keys, nullable(handlesOf(backs)))
			for _, r := range rows {
				held[handled{string(r.LeaseKey), id(r.Handle.String)}] = true
			}
			return err
		}
		rows, err := d.q.HoldingLeases(ctx, on, keys)
		for _, r := range rows {
			held[handled{string(r.LeaseKey), id(r.Handle.String)}] = true
		}
		return err
	}))
	ours := make([]bool, len(backs))
	for i, b := range backs {
		ours[i] = held[handled{b.Key, b.Handle}]
	}
	return ours, err
}
