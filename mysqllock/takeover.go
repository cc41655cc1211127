package mysqllock

import (
	"context"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// TakeOver evicts the member, looks in a statement of its own whether it is gone, and takes what it held.
func (e *engine) TakeOver(ctx context.Context, by lease.By, a lease.Ask, gone member.ID) (token int64, err error) {
	var stands int64
	err = e.once(ctx, func(on mysqldb.DBTX) error { return e.q.Evict(ctx, on, gone[:]) })
	if err == nil {
		err = e.read(ctx, func(on mysqldb.DBTX) (err error) {
			stands, err = e.q.MemberStands(ctx, on, gone[:])
			return err
		})
	}
	if err != nil || stands > 0 {
		return 0, fault.NoWrite(err) // an eviction gives nobody anything
	}
	err = e.once(ctx, func(on mysqldb.DBTX) error {
		result, err := e.q.TakeLeaseOver(ctx, on, mysqldb.TakeLeaseOverParams{
			MemberID: by.Member[:], Beat: by.Beat, LeaseKey: []byte(a.Key), Gone: gone[:], Handle: a.Handle[:],
			Keeper: keeper(by, a), HoldUs: a.Hold.Microseconds(), Label: []byte(a.Label), Data: a.Data,
		})
		if err != nil {
			return err
		}
		token, _, err = granted(result)
		return err
	})
	return token, err
}
