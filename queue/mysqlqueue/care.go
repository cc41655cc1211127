package mysqlqueue

import (
	"bytes"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// Standing counts rows.
func (d *database) Standing(ctx context.Context, jobs []engine.ID) (int, error) {
	n, err := d.q.CountJobs(ctx, d.on(d.db), blobs(jobs))
	return int(n), sqlerr.Unwritten(err)
}

// BeginJobs is one statement for a lone job that is recorded. Otherwise another one reads which are: some drivers count the rows that were
// found, others those that were changed.
func (d *database) BeginJobs(ctx context.Context, m member.ID, all []engine.Place) (begun, locked []engine.ID, err error) {
	return d.beginJobs(ctx, d.on(d.db), m, all)
}

func (d *database) beginJobs(ctx context.Context, on mysqldb.DBTX, m member.ID, all []engine.Place) (begun, locked []engine.ID, err error) {
	var args []any
	for i := range all {
		args = append(args, m[:], all[i].Claim[:], all[i].Job[:])
	}
	n, err := mysql.ExecAll(ctx, on, mysqldb.BeginJobs, mostAsks, args)
	switch {
	case err != nil:
		return nil, nil, err
	case n == 1 && len(all) == 1:
		return []engine.ID{all[0].Job}, nil, nil
	}
	err = mysql.QueryAll(ctx, on, mysqldb.BegunJobs, mostAsks, args, func(row *sql.Rows) error {
		var job []byte
		var recorded bool
		err := row.Scan(&job, &recorded)
		if recorded {
			begun = append(begun, idOf(job))
		} else {
			locked = append(locked, idOf(job))
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return begun, locked, nil
}

// Payloads reads rows.
func (d *database) Payloads(ctx context.Context, jobs []engine.ID) (map[engine.ID][]byte, error) {
	rows, err := d.q.ReadPayloads(ctx, d.on(d.db), blobs(jobs))
	payloads := make(map[engine.ID][]byte, len(rows))
	for _, r := range rows {
		payloads[idOf(r.JobID)] = r.Payload
	}
	return payloads, sqlerr.Unwritten(err)
}

// Promote finds them, and moves those that it has locked.
func (d *database) Promote(ctx context.Context, since time.Duration, most int) (int, error) {
	return d.promote(ctx, func(on mysqldb.DBTX) ([]mysqldb.DueJobsRow, error) {
		return d.q.DueJobs(ctx, on, -since.Microseconds(), int32(most))
	})
}

// PromoteUrgent finds them without a lock, and moves those that it can lock.
func (d *database) PromoteUrgent(ctx context.Context, most int) (int, error) {
	urgent, err := d.q.UrgentJobs(ctx, d.on(d.db), int32(most))
	if err != nil {
		return 0, err
	}
	var places []any
	for _, j := range urgent {
		places = append(places, j.RunUs, j.JobID)
	}
	return d.promote(ctx, func(on mysqldb.DBTX) (due []mysqldb.DueJobsRow, err error) {
		err = mysql.QueryAll(ctx, on, mysqldb.LockScheduled, mostAsks, places, func(row *sql.Rows) error {
			var j mysqldb.DueJobsRow
			err := row.Scan(&j.RunUs, &j.JobID, &j.Queue, &j.Priority)
			due = append(due, j)
			return err
		})
		return due, err
	})
}

// promote moves the jobs that take has locked.
func (d *database) promote(ctx context.Context, take func(on mysqldb.DBTX) ([]mysqldb.DueJobsRow, error)) (promoted int, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		due, err := take(on)
		if err != nil || len(due) == 0 {
			return false, err
		}
		var places, ready []any
		for _, j := range due {
			places = append(places, j.RunUs, j.JobID)
			ready = append(ready, j.Queue, j.Priority, j.JobID)
		}
		if _, err := mysql.ExecAll(ctx, on, mysqldb.Unschedule, mostAsks, places); err != nil {
			return false, err
		}
		promoted = len(due)
		return true, insertMany(ctx, on, mysqldb.ReadyJobs, ready)
	})
	if err != nil {
		return 0, err
	}
	return promoted, nil
}

// Suspects reads the claims, and then, in another snapshot, the members: one is committed before anything names it.
func (d *database) Suspects(ctx context.Context) ([]member.ID, error) {
	on := d.on(d.db)
	claimants, err := d.q.Claimants(ctx, on)
	if err != nil || len(claimants) == 0 {
		return nil, err
	}
	living, err := d.q.LivingMembers(ctx, on, claimants)
	if err != nil {
		return nil, err
	}
	var suspects []member.ID
	for _, c := range claimants {
		if !slices.ContainsFunc(living, func(l []byte) bool { return bytes.Equal(l, c) }) {
			suspects = append(suspects, member.ID(idOf(c)))
		}
	}
	return suspects, nil
}

// ClaimsOf reads the rows of claims.
func (d *database) ClaimsOf(ctx context.Context, m member.ID) ([]engine.ID, error) {
	rows, err := d.q.RecordedClaims(ctx, d.on(d.db), m[:])
	claims := make([]engine.ID, len(rows))
	for i, c := range rows {
		claims[i] = idOf(c)
	}
	return claims, err
}

// Unclaim deletes the rows of the claim, which is what decides who has its jobs.
func (d *database) Unclaim(ctx context.Context, m member.ID, claim engine.ID) (found bool, cancelled []engine.ID, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		found, cancelled = false, nil
		jobs, err := d.q.LockClaim(ctx, on, m[:], claim[:])
		if err != nil || len(jobs) == 0 {
			return false, err
		}
		found = true
		cancelled, err = d.cancelsAmong(ctx, on, m, jobs)
		if err != nil || len(cancelled) > 0 {
			return false, err
		}
		if _, err := byKeys(ctx, on, mysqldb.EndClaimed, jobs, m[:], claim[:]); err != nil {
			return false, err
		}
		_, err = d.q.ReadyAgain(ctx, on, jobs)
		return true, err
	})
	return found && err == nil, cancelled, err
}

// cancelsAmong reads which of some jobs, whose claims are locked, others want cancelled.
func (d *database) cancelsAmong(ctx context.Context, on mysqldb.DBTX, m member.ID, jobs [][]byte) (cancelled []engine.ID, err error) {
	for some := range slices.Chunk(jobs, mostAsks) {
		found, err := d.q.CancelsAmong(ctx, on, m[:], some)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			cancelled = append(cancelled, idOf(f))
		}
	}
	return cancelled, nil
}

// Adopt locks rows of claims, and then looks which of their jobs have not ended. The rows of others are deleted.
func (d *database) Adopt(ctx context.Context, gone, heir member.ID, most int) (claims []engine.ID, orphans []engine.Orphan, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		found, err := d.q.ClaimsOf(ctx, on, gone[:], int32(most))
		if err != nil || len(found) == 0 {
			return false, err
		}
		jobs := make([][]byte, len(found))
		for i, c := range found {
			jobs[i] = c.JobID
		}
		rows, err := d.q.OrphanJobs(ctx, on, jobs)
		if err != nil {
			return false, err
		}
		stand := make(map[engine.ID]engine.Orphan, len(rows))
		for _, j := range rows {
			id := idOf(j.JobID)
			stand[id] = engine.Orphan{
				Place: engine.Place{Job: id, Keyed: j.Keyed != 0}, Queue: string(j.Queue), Kind: string(j.Kind), Priority: j.Priority,
				Attempt: j.Attempt, MaxAttempts: j.MaxAttempts, Begun: int16(j.Begun), EnqueuedAt: at(j.EnqueuedUs),
			}
		}
		for from := 0; from < len(found); {
			claim := found[from].ClaimID
			var ours, over [][]byte
			for ; from < len(found) && bytes.Equal(found[from].ClaimID, claim); from++ {
				o, stands := stand[idOf(found[from].JobID)]
				if !stands {
					over = append(over, found[from].JobID)
					continue
				}
				o.Claim = idOf(claim)
				orphans, ours = append(orphans, o), append(ours, found[from].JobID)
			}
			if _, err := byKeys(ctx, on, mysqldb.AdoptClaimed, ours, heir[:], gone[:], claim); err != nil {
				return false, err
			}
			if _, err := byKeys(ctx, on, mysqldb.EndClaimed, over, gone[:], claim); err != nil {
				return false, err
			}
			claims = append(claims, idOf(claim))
		}
		_, err = byKeys(ctx, on, mysqldb.AdoptCancels, jobs, heir[:], gone[:])
		return true, err
	})
	if err != nil {
		return nil, nil, err
	}
	return claims, orphans, nil
}

// Evict is two statements, each in a snapshot of its own.
func (d *database) Evict(ctx context.Context, m member.ID) (gone bool, err error) {
	if err := d.written(ctx, func(on mysqldb.DBTX) error { return d.q.Evict(ctx, on, m[:]) }); err != nil {
		return false, err
	}
	stands, err := d.Stands(ctx, m)
	return !stands, err
}

// Stands reads the row.
func (d *database) Stands(ctx context.Context, m member.ID) (bool, error) {
	n, err := d.q.MemberStands(ctx, d.on(d.db), m[:])
	return n > 0, err
}
