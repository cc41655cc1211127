package pgqueue

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// place lets jobs into their groups, in their order, or has them wait. The last job of a group says how many there may be at once.
func (d *database) place(ctx context.Context, on pgdb.DBTX, jobs []engine.Insert) error {
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

// DueGroups reads the first rows after a cursor.
func (d *database) DueGroups(ctx context.Context, after engine.Cursor) (groups []engine.Group, last engine.Cursor, err error) {
	rows, err := d.q.DueGroups(ctx, d.db, after.RunAt, postgres.UUID(after.Job), engine.DueLook)
	for _, r := range rows {
		if r.RunAt != nil {
			last = engine.Cursor{RunAt: *r.RunAt, Job: r.JobID.Bytes}
		} else {
			groups = append(groups, engine.Group{Queue: r.Queue, Key: r.GroupKey})
		}
	}
	return groups, last, err
}

// PromoteGroups has jobs come to their groups in the order of their times.
func (d *database) PromoteGroups(ctx context.Context, groups []engine.Group, after engine.Cursor, most int, wait time.Duration) (n int, err error) {
	p := pgdb.TakeDueGroupedParams{AfterAt: after.RunAt, AfterJob: postgres.UUID(after.Job), Most: int32(most)}
	for _, g := range groups {
		p.Queues, p.GroupKeys = append(p.Queues, g.Queue), append(p.GroupKeys, g.Key)
	}
	err = d.inTx(ctx, wait, func(on pgdb.DBTX) (commit bool, err error) {
		due, err := d.q.TakeDueGrouped(ctx, on, p)
		if err != nil || len(due) == 0 {
			return false, err
		}
		slices.SortFunc(due, func(a, b pgdb.TakeDueGroupedRow) int {
			if c := a.RunAt.Compare(b.RunAt); c != 0 {
				return c
			}
			return bytes.Compare(a.JobID.Bytes[:], b.JobID.Bytes[:])
		})
		n = len(due)
		return true, d.place(ctx, on, comers(due))
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// comers are jobs whose time has come. One whose row was deleted by hand, which has no limit, is left out.
func comers(due []pgdb.TakeDueGroupedRow) []engine.Insert {
	jobs := make([]engine.Insert, 0, len(due))
	for _, j := range due {
		if j.GroupMost > 0 {
			jobs = append(jobs, engine.Insert{ID: j.JobID.Bytes, Queue: j.Queue, Priority: j.Priority, Group: j.GroupKey, GroupLimit: j.GroupMost})
		}
	}
	return jobs
}
