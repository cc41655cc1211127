package mysqllock

import (
	"context"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
)

// List reads what is held in one statement, and so in one snapshot.
func (e *engine) List(ctx context.Context) ([]lease.Listed, error) {
	var rows []mysqldb.ListLeasesRow
	err := e.read(ctx, func(on mysqldb.DBTX) (err error) {
		rows, err = e.q.ListLeases(ctx, on)
		return err
	})
	if err != nil {
		return nil, err
	}
	listed := make([]lease.Listed, len(rows))
	for i, r := range rows {
		listed[i] = lease.Listed{
			Key: string(r.LeaseKey), Token: r.Token, Handle: id(r.Handle.String),
			Holder: lease.Holder{
				Member: id(r.MemberID.String), Label: string(r.Label), Token: r.Token, Remaining: micros(r.RemainingUs),
			},
			MemberLabel: string(r.MemberLabel), Age: micros(r.AgeUs), Waiters: r.Waiters,
		}
	}
	return listed, nil
}
