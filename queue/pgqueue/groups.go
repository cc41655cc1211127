package pgqueue

import (
	"bytes"
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
)

// place lets jobs into their groups, in their order, or has them wait.
func (d *database) place(ctx context.Context, on pgdb.DBTX, jobs []pgtype.UUID) error {
	if len(jobs) == 0 {
		return nil
	}
	if err := d.q.OpenGroups(ctx, on, jobs); err != nil {
		return err
	}
	return d.q.PlaceJobs(ctx, on, jobs)
}

// promoteGrouped has jobs of groups come to them, in the order of their times.
func (d *database) promoteGrouped(ctx context.Context, most int) (n int, err error) {
	err = d.inTx(ctx, func(on pgdb.DBTX) (commit bool, err error) {
		due, err := d.q.TakeDueGrouped(ctx, on, int32(most))
		if err != nil || len(due) == 0 {
			return false, err
		}
		slices.SortFunc(due, func(a, b pgdb.TakeDueGroupedRow) int {
			if c := a.RunAt.Compare(b.RunAt); c != 0 {
				return c
			}
			return bytes.Compare(a.JobID.Bytes[:], b.JobID.Bytes[:])
		})
		jobs := make([]pgtype.UUID, len(due))
		for i, j := range due {
			jobs[i] = j.JobID
		}
		n = len(due)
		return true, d.place(ctx, on, jobs)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
