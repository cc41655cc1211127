package mysqllock

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/fault"
)

const (
	sweepStep = 200 // rows that one statement deletes

	// What was seen unused may be in use when it is deleted: its row has changed since then. An
	// acquisition stamps the row with the time at which it began, so no less than it may take.
	leastUnused = time.Minute
)

// Sweep tidies in small steps: rows are found without a lock, and deleted by their keys. Leases come
// before members: one whose member was gone when it was read is free for good.
func (e *engine) Sweep(ctx context.Context, unused time.Duration) (removed int64, err error) {
	older := max(unused, leastUnused).Microseconds()
	for _, sweep := range []func(context.Context, int64) (int64, error){e.sweepLeases, e.sweepMembers, e.sweepWaiters} {
		n, err := sweep(ctx, older)
		removed += n
		if err != nil {
			return removed, fault.NoWrite(err) // no lease is granted or taken by it
		}
	}
	return removed, nil
}

func (e *engine) sweepLeases(ctx context.Context, older int64) (int64, error) {
	return e.steps(ctx,
		func(on mysqldb.DBTX, after []byte) ([][]byte, error) {
			return e.q.UnusedLeases(ctx, on, after, older, sweepStep)
		},
		func(on mysqldb.DBTX, keys [][]byte) (int64, error) { return e.q.SweepLeases(ctx, on, keys, older) })
}

func (e *engine) sweepMembers(ctx context.Context, older int64) (int64, error) {
	return e.steps(ctx,
		func(on mysqldb.DBTX, after []byte) ([][]byte, error) {
			return e.q.ExpiredMembers(ctx, on, after, older, sweepStep)
		},
		func(on mysqldb.DBTX, ids [][]byte) (int64, error) { return e.q.SweepMembers(ctx, on, ids, older) })
}

// steps finds and deletes along the primary key until nothing more is found.
func (e *engine) steps(
	ctx context.Context, find func(on mysqldb.DBTX, after []byte) ([][]byte, error),
	remove func(on mysqldb.DBTX, keys [][]byte) (int64, error),
) (removed int64, err error) {
	for after := []byte{}; ; {
		var found [][]byte
		err := e.read(ctx, func(on mysqldb.DBTX) (err error) {
			found, err = find(on, after)
			return err
		})
		if err != nil || len(found) == 0 {
			return removed, err
		}
		err = e.once(ctx, func(on mysqldb.DBTX) error {
			n, err := remove(on, found)
			removed += n
			return err
		})
		if err != nil {
			return removed, err
		}
		after = found[len(found)-1]
	}
}

// sweepWaiters deletes one row a statement: their key has two parts, and they are few.
func (e *engine) sweepWaiters(ctx context.Context, _ int64) (removed int64, err error) {
	for from := []byte{}; ; {
		var found []mysqldb.ExpiredWaitersRow
		err := e.read(ctx, func(on mysqldb.DBTX) (err error) {
			found, err = e.q.ExpiredWaiters(ctx, on, from, sweepStep)
			return err
		})
		if err != nil {
			return removed, err
		}
		for _, w := range found {
			err := e.once(ctx, func(on mysqldb.DBTX) error {
				n, err := e.q.SweepWaiter(ctx, on, w.LeaseKey, w.MemberID)
				removed += n
				return err
			})
			if err != nil {
				return removed, err
			}
			from = w.LeaseKey
		}
		if len(found) < sweepStep {
			return removed, nil
		}
	}
}
