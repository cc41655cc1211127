package pgqueue

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// place lets jobs into their groups, in their order, or has them wait. The last job of a group says
// how many there may be at once.
func (d *database) place(ctx context.Context, on pgdb.DBTX, jobs []driver.Insert) error {
	if len(jobs) == 0 {
		return nil
	}
	n := len(jobs)
	p := pgdb.PlaceJobsParams{JobIds: make([]pgtype.UUID, n), Queues: make([]string, n), GroupKeys: make([]string, n), Priorities: make([]int16, n)}
	most := make(map[[2]string]int32)
	for i := range jobs {
		j := &jobs[i]
		p.JobIds[i], p.Queues[i], p.GroupKeys[i], p.Priorities[i] = postgres.UUID(j.ID), j.Queue, j.Group, j.Priority
		most[[2]string{j.Queue, j.Group}] = j.GroupLimit
	}
	var queues, groups []string
	var mosts []int32
	for k, m := range most {
		queues, groups, mosts = append(queues, k[0]), append(groups, k[1]), append(mosts, m)
	}
	if err := d.q.OpenGroups(ctx, on, queues, groups, mosts); err != nil {
		return err
	}
	return d.q.PlaceJobs(ctx, on, p)
}
