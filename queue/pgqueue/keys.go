package pgqueue

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// keyTries is how often jobs are inserted whose unique keys others had, and released before they
// could be named.
const keyTries = 100

func haveUnique(jobs []driver.Insert) bool {
	return slices.ContainsFunc(jobs, func(j driver.Insert) bool { return j.Unique != "" })
}

// insertKeyed enqueues jobs that have keys, and others, in a transaction.
func (d *database) insertKeyed(ctx context.Context, on pgdb.DBTX, jobs []driver.Insert, channel string) (dups []driver.Duplicate, err error) {
	out := make(map[driver.ID]bool)
	for n, left := 0, jobs; len(left) > 0; n++ {
		if n == keyTries {
			return nil, fmt.Errorf("%w: the job with unique key %q has ended %d times before it could be named", dblock.ErrBusy, left[0].Unique, n)
		}
		var some []driver.Duplicate
		if some, left, err = d.insertOnce(ctx, on, left, channel); err != nil {
			return nil, err
		}
		for _, s := range some {
			out[s.Job] = true
		}
		dups = append(dups, some...)
	}
	var grouped []driver.Insert
	for i := range jobs {
		if j := &jobs[i]; j.Group != "" && !out[j.ID] {
			grouped = append(grouped, *j)
		}
	}
	return dups, d.assignGroups(ctx, on, grouped, false)
}

// insertOnce inserts jobs but for those whose unique keys are taken: by others that it names, or,
// of those that are left, it is unknown by which.
func (d *database) insertOnce(ctx context.Context, on pgdb.DBTX, jobs []driver.Insert, channel string) (dups []driver.Duplicate, left []driver.Insert, err error) {
	refused, err := d.q.EnqueueKeyed(ctx, on, keyColumns(jobs, channel))
	if err != nil || len(refused) == 0 {
		return nil, nil, err
	}
	not := make(map[driver.ID]bool, len(refused))
	for _, r := range refused {
		not[r.Bytes] = true
	}
	stood := slices.DeleteFunc(slices.Clone(jobs), func(j driver.Insert) bool { return !not[j.ID] })
	holders, err := d.holders(ctx, on, stood)
	if err != nil {
		return nil, nil, err
	}
	for i, h := range holders {
		if h == (driver.ID{}) {
			left = append(left, stood[i])
		} else {
			dups = append(dups, driver.Duplicate{Job: stood[i].ID, Holder: h})
		}
	}
	return dups, left, nil
}

// Holders reads which jobs have unique keys, and waits until the synchronous standbys have those
// rows.
func (d *database) Holders(ctx context.Context, jobs []driver.Insert) ([]driver.ID, error) {
	holders, err := d.holders(ctx, d.db, jobs)
	return holders, sqlerr.Unwritten(err)
}

func (d *database) holders(ctx context.Context, on pgdb.DBTX, jobs []driver.Insert) ([]driver.ID, error) {
	queues, keys := make([]string, len(jobs)), make([]string, len(jobs))
	for i := range jobs {
		queues[i], keys[i] = jobs[i].Queue, jobs[i].Unique
	}
	found, err := d.q.KeyHolders(ctx, on, queues, keys)
	if err == nil && len(found) > 0 && found[0].Unconfirmed {
		err = d.q.ConfirmCommits(ctx, on)
	}
	if err != nil {
		return nil, err
	}
	by := make(map[[2]string]driver.ID, len(found))
	for _, f := range found {
		by[[2]string{f.Queue, f.UniqueKey}] = f.JobID.Bytes
	}
	holders := make([]driver.ID, len(jobs))
	for i := range jobs {
		holders[i] = by[[2]string{queues[i], keys[i]}]
	}
	return holders, nil
}

// queueKeys sends, before jobs are deleted, that their unique keys are free, and their places in
// their groups. Without such jobs it is nothing.
func (d *database) queueKeys(batch *pgx.Batch, x *driver.SyncBatch) {
	ends := x.KeyedEnds()
	if len(ends) == 0 {
		return
	}
	jobs, of, claims := positions(ends)
	me := postgres.UUID(x.Member)
	batch.Queue(d.SQL(pgdb.FreeUnique), claims, me, jobs, of)
	if !x.LeavesGroups() {
		return
	}
	batch.Queue(d.SQL(pgdb.LockGroups), jobs)
	batch.Queue(d.SQL(pgdb.FreeGroupSlots), claims, me, jobs, of)
	batch.Queue(d.SQL(pgdb.AdmitJobs), claims, me, jobs, of)
}

func keyColumns(jobs []driver.Insert, channel string) pgdb.EnqueueKeyedParams {
	c := columns(jobs, channel)
	p := pgdb.EnqueueKeyedParams{
		Channel: channel,
		JobIds:  c.JobIds, Queues: c.Queues, Kinds: c.Kinds, Priorities: c.Priorities, MaxAttempts: c.MaxAttempts, DelaysUs: c.DelaysUs, Payloads: c.Payloads,
		UniqueKeys: make([]string, len(jobs)), GroupKeys: make([]string, len(jobs)), Mosts: make([]int32, len(jobs)),
	}
	for i := range jobs {
		p.UniqueKeys[i], p.GroupKeys[i], p.Mosts[i] = jobs[i].Unique, jobs[i].Group, jobs[i].GroupLimit
	}
	return p
}

// assignGroups lets jobs without a delay into their groups, in their order, or has them wait. The
// last job of a group says how many there may be at once. Jobs that are due were enqueued before
// others, and say so of new groups alone.
func (d *database) assignGroups(ctx context.Context, on pgdb.DBTX, jobs []driver.Insert, due bool) error {
	if len(jobs) == 0 {
		return nil
	}
	var p pgdb.AssignJobsParams
	most, comes := make(map[[2]string]int32), make(map[[2]string]bool)
	for i := range jobs {
		j := &jobs[i]
		group := [2]string{j.Queue, j.Group}
		most[group] = j.GroupLimit
		if j.Delay > 0 {
			continue
		}
		comes[group] = true
		p.JobIds, p.Priorities = append(p.JobIds, postgres.UUID(j.ID)), append(p.Priorities, j.Priority)
		p.Queues, p.GroupKeys = append(p.Queues, j.Queue), append(p.GroupKeys, j.Group)
	}
	open := pgdb.OpenGroupsParams{Keeps: due}
	for k, m := range most {
		open.Queues, open.GroupKeys = append(open.Queues, k[0]), append(open.GroupKeys, k[1])
		open.Mosts, open.Comes = append(open.Mosts, m), append(open.Comes, comes[k])
	}
	if err := d.q.OpenGroups(ctx, on, open); err != nil || len(p.JobIds) == 0 {
		return err
	}
	return d.q.AssignJobs(ctx, on, p)
}
