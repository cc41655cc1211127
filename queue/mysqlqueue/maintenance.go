package mysqlqueue

import (
	"bytes"
	"context"
	"database/sql"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// maintenance is driver.Maintenance.
type maintenance struct{ d *database }

// Promote finds jobs, and moves those that it has locked.
func (m maintenance) Promote(ctx context.Context, r *driver.PromoteRequest) (int, error) {
	switch {
	case len(r.Groups) > 0:
		return m.promoteGroups(ctx, r)
	case len(r.Jobs) > 0:
		found := make([]any, 0, 2*len(r.Jobs))
		for _, j := range r.Jobs {
			found = append(found, afterMicros(j), j.Job[:])
		}
		return m.promoteFound(ctx, found)
	case r.Urgent:
		return m.promoteUrgent(ctx, r.Max)
	case r.OfEach > 0:
		return m.promoteOfEach(ctx, r.OfEach, r.Max)
	}
	return m.promote(ctx, func(on mysqldb.DBTX) ([]mysqldb.DueJobsRow, error) {
		return m.d.q.DueJobs(ctx, on, -r.Since.Microseconds(), int32(r.Max))
	})
}

// promoteUrgent finds them without a lock, and moves those that it can lock.
func (m maintenance) promoteUrgent(ctx context.Context, most int) (int, error) {
	urgent, err := m.d.q.UrgentJobs(ctx, m.d.on(m.d.db), int32(most))
	if err != nil {
		return 0, err
	}
	var found []any
	for _, j := range urgent {
		found = append(found, j.RunUs, j.JobID)
	}
	return m.promoteFound(ctx, found)
}

// promoteOfEach is promoteUrgent for some jobs of each queue: of some queues, if there are very
// many.
func (m maintenance) promoteOfEach(ctx context.Context, ofEach, most int) (int, error) {
	on := m.d.on(m.d.db)
	queues, err := m.d.q.ScheduledQueues(ctx, on)
	if err != nil {
		return 0, err
	}
	rand.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
	var found []any
	for _, queue := range queues {
		for _, retry := range []bool{false, true} {
			left := min(ofEach, most-len(found)/2)
			if left <= 0 {
				return m.promoteFound(ctx, found)
			}
			due, err := m.d.q.DueOfQueue(ctx, on, queue, retry, int32(left))
			if err != nil {
				return 0, err
			}
			for _, j := range due {
				found = append(found, j.RunUs, j.JobID)
			}
		}
	}
	return m.promoteFound(ctx, found)
}

// promoteFound moves those of the jobs found that it can lock: their times and ids.
func (m maintenance) promoteFound(ctx context.Context, found []any) (int, error) {
	return m.promote(ctx, func(on mysqldb.DBTX) (due []mysqldb.DueJobsRow, err error) {
		err = mysql.QueryAll(ctx, on, mysqldb.LockScheduled, maxReads, found, func(row *sql.Rows) error {
			var j mysqldb.DueJobsRow
			err := row.Scan(&j.RunUs, &j.JobID, &j.Queue, &j.Priority)
			due = append(due, j)
			return err
		})
		return due, err
	})
}

// promote moves the jobs that take has locked.
func (m maintenance) promote(ctx context.Context, take func(on mysqldb.DBTX) ([]mysqldb.DueJobsRow, error)) (promoted int, err error) {
	err = m.d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		due, err := take(on)
		if err != nil || len(due) == 0 {
			return false, err
		}
		var args, ready []any
		for _, j := range due {
			args = append(args, j.RunUs, j.JobID)
			ready = append(ready, j.Queue, j.Priority, j.JobID)
		}
		if _, err := mysql.ExecAll(ctx, on, mysqldb.Unschedule, maxReads, args); err != nil {
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

// Suspects reads the claims, and then, in another snapshot, the members: one is committed before
// anything names it.
func (m maintenance) Suspects(ctx context.Context) ([]member.ID, error) {
	on := m.d.on(m.d.db)
	claimants, err := m.d.q.Claimants(ctx, on)
	if err != nil || len(claimants) == 0 {
		return nil, err
	}
	living, err := m.d.q.LivingMembers(ctx, on, claimants)
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
func (m maintenance) ClaimsOf(ctx context.Context, of member.ID) ([]driver.ID, error) {
	rows, err := m.d.q.RecordedClaims(ctx, m.d.on(m.d.db), of[:])
	claims := make([]driver.ID, len(rows))
	for i, c := range rows {
		claims[i] = idOf(c)
	}
	return claims, err
}

// Adopt locks rows of claims, and then looks which of their jobs have not ended. The rows of others
// are deleted.
func (m maintenance) Adopt(ctx context.Context, r *driver.AdoptRequest) (claims []driver.ID, orphans []driver.Orphan, err error) {
	err = m.d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		var found []mysqldb.ClaimsOfRow
		if r.Claim == (driver.ID{}) {
			found, err = m.d.q.ClaimsOf(ctx, on, r.From[:], int32(r.Max))
		} else {
			var rows []mysqldb.ClaimRowsRow
			rows, err = m.d.q.ClaimRows(ctx, on, r.From[:], r.Claim[:])
			for _, row := range rows {
				found = append(found, mysqldb.ClaimsOfRow(row))
			}
		}
		if err != nil || len(found) == 0 {
			return false, err
		}
		jobs := make([][]byte, len(found))
		for i, c := range found {
			jobs[i] = c.JobID
		}
		rows, err := m.d.q.OrphanJobs(ctx, on, jobs)
		if err != nil {
			return false, err
		}
		stand := make(map[driver.ID]driver.Orphan, len(rows))
		for _, j := range rows {
			id := idOf(j.JobID)
			stand[id] = driver.Orphan{
				Position: driver.Position{Job: id, Keyed: j.Keyed != 0}, Queue: string(j.Queue), Kind: string(j.Kind), Priority: j.Priority,
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
			if _, err := byKeys(ctx, on, mysqldb.AdoptClaimed, ours, r.Heir[:], r.From[:], claim); err != nil {
				return false, err
			}
			if _, err := byKeys(ctx, on, mysqldb.EndClaimed, over, r.From[:], claim); err != nil {
				return false, err
			}
			claims = append(claims, idOf(claim))
		}
		_, err = byKeys(ctx, on, mysqldb.AdoptCancels, jobs, r.Heir[:], r.From[:])
		return true, err
	})
	if err != nil {
		return nil, nil, err
	}
	return claims, orphans, nil
}

// afterMicros returns the time of a cursor; 0 for the zero cursor.
func afterMicros(after driver.DueCursor) int64 { return max(after.RunAt.UnixMicro(), 0) }

// DueJobs reads the first rows. No queue has an empty name, which a list needs that has no other.
func (m maintenance) DueJobs(ctx context.Context, r *driver.DueRequest) ([]driver.DueJob, error) {
	p := mysqldb.DueUnlockedParams{AgoUs: -r.Since.Microseconds(), Queues: [][]byte{{}}, Limit: int32(r.Max)}
	for _, queue := range r.Queues {
		p.Queues = append(p.Queues, []byte(queue))
	}
	if r.OfThese {
		p.OfThese = 1
	}
	rows, err := m.d.q.DueUnlocked(ctx, m.d.on(m.d.db), p)
	due := make([]driver.DueJob, len(rows))
	for i, r := range rows {
		due[i] = driver.DueJob{DueCursor: driver.DueCursor{RunAt: time.UnixMicro(r.RunUs), Job: idOf(r.JobID)}, Queue: string(r.Queue)}
	}
	return due, err
}

// Postpone makes a new row, and deletes the old one: services have no right to update them.
func (m maintenance) Postpone(ctx context.Context, j driver.DueCursor, after time.Duration) error {
	place := []any{j.RunAt.UnixMicro(), j.Job[:]}
	return m.d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		found := false
		err = mysql.QueryAll(ctx, on, mysqldb.LockScheduled, maxReads, place, func(row *sql.Rows) error {
			found = true
			var locked mysqldb.DueJobsRow
			return row.Scan(&locked.RunUs, &locked.JobID, &locked.Queue, &locked.Priority)
		})
		if err != nil || !found {
			return false, err
		}
		if err := m.d.q.PostponeJob(ctx, on, after.Microseconds(), j.RunAt.UnixMicro(), j.Job[:]); err != nil {
			return false, err
		}
		_, err = mysql.ExecAll(ctx, on, mysqldb.Unschedule, maxReads, place)
		return true, err
	})
}

// DueGroups reads the first rows after a cursor.
func (m maintenance) DueGroups(ctx context.Context, after driver.DueCursor) (groups []driver.Group, last driver.DueCursor, err error) {
	rows, err := m.d.q.DueGroups(ctx, m.d.on(m.d.db), mysqldb.DueGroupsParams{
		AfterUs: afterMicros(after), AfterJob: after.Job[:], Limit: driver.MaxDueRead, Offset: driver.MaxDueRead - 1,
	})
	for _, r := range rows {
		if r.GroupKey.Valid {
			groups = append(groups, driver.Group{Queue: string(r.Queue), Key: r.GroupKey.String})
		} else {
			last = driver.DueCursor{RunAt: time.UnixMicro(r.RunUs), Job: idOf(r.JobID)}
		}
	}
	return groups, last, err
}

// promoteGroups locks the groups first, and has jobs come to them in the order of their times. It
// waits for them only if it is to wait for a second.
func (m maintenance) promoteGroups(ctx context.Context, r *driver.PromoteRequest) (promoted int, err error) {
	of := make(map[key]struct{}, len(r.Groups))
	for _, g := range r.Groups {
		of[key{g.Queue, g.Key}] = struct{}{}
	}
	lock := mysqldb.LockGroupsNoWait
	if r.Wait >= mysql.LockWait {
		lock = mysqldb.LockGroups
	}
	err = m.d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		if err := lockRows(ctx, on, lock, sorted(of)); err != nil {
			return false, err
		}
		found, err := m.d.q.DueGrouped(ctx, on, mysqldb.DueGroupedParams{AfterUs: afterMicros(r.After), AfterJob: r.After.Job[:], Limit: driver.MaxDueRead})
		if err != nil {
			return false, err
		}
		var args []any
		var due [][]byte
		for _, j := range found {
			if _, ours := of[key{string(j.Queue), j.GroupKey.String}]; ours && len(due) < r.Max {
				args, due = append(args, j.RunUs, j.JobID), append(due, j.JobID)
			}
		}
		if promoted = len(due); promoted == 0 {
			return false, nil
		}
		if _, err := mysql.ExecAll(ctx, on, mysqldb.Unschedule, maxReads, args); err != nil {
			return false, err
		}
		return true, m.assignDue(ctx, on, due)
	})
	if err != nil {
		return 0, err
	}
	return promoted, nil
}

// assignDue does so with jobs whose time has come.
func (m maintenance) assignDue(ctx context.Context, on mysqldb.DBTX, due [][]byte) error {
	if len(due) == 0 {
		return nil
	}
	found, err := m.d.q.KeysOfJobs(ctx, on, due)
	if err != nil {
		return err
	}
	by := make(map[string]comer, len(found))
	for _, f := range found {
		by[string(f.JobID)] = comer{key{string(f.Queue), f.GroupKey.String}, f.JobID, f.Priority, f.GroupMost, false}
	}
	var jobs []comer
	for _, j := range due {
		if c, has := by[string(j)]; has {
			jobs = append(jobs, c)
		}
	}
	return assignGroups(ctx, on, jobs, true)
}

// CancelRequests goes along the key.
func (m maintenance) CancelRequests(ctx context.Context, of member.ID, after driver.ID) ([]driver.CancelRequest, error) {
	found, err := m.d.q.CancelsOf(ctx, m.d.on(m.d.db), of[:], after[:])
	requests := make([]driver.CancelRequest, len(found))
	for i, f := range found {
		requests[i] = driver.CancelRequest{Job: idOf(f.JobID), Active: f.Stands > 0}
	}
	return requests, sqlerr.Unwritten(err)
}

// Prune reads what is old without locks, and deletes it by its key.
func (m maintenance) Prune(ctx context.Context, r *driver.PruneRequest) (pruned int, err error) {
	switch r.Kind {
	case driver.DeadJob:
		err = m.d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
			n, err := m.d.q.DeleteDead(ctx, on, r.Job[:])
			pruned = int(n)
			return n > 0, err
		})
		return pruned, err
	case driver.OldHistory:
		return m.prune(ctx, func(on mysqldb.DBTX) (int64, error) {
			return m.d.q.PruneHistory(ctx, on, -int64(r.Age/driver.Day), int32(r.Max))
		})
	case driver.DeadJobs:
		return m.prune(ctx, func(on mysqldb.DBTX) (int64, error) {
			old, err := m.d.q.OldDead(ctx, on, []byte(r.Queue), -r.Age.Microseconds(), int32(r.Max))
			if err != nil || len(old) == 0 {
				return 0, err
			}
			return byKeys(ctx, on, mysqldb.PurgeDead, old)
		})
	case driver.GoneMembers:
		gone, err := m.d.q.ExpiredMembers(ctx, m.d.on(m.d.db), []byte{}, r.Age.Microseconds(), int32(r.Max))
		if err != nil || len(gone) == 0 {
			return 0, err
		}
		return m.prune(ctx, func(on mysqldb.DBTX) (int64, error) {
			return m.d.q.SweepMembers(ctx, on, gone, r.Age.Microseconds())
		})
	}
	var requests []any
	for _, job := range r.Jobs {
		requests = append(requests, r.Member[:], job[:])
	}
	if r.Kind == driver.StaleRequests {
		old, err := m.d.q.OldCancels(ctx, m.d.on(m.d.db))
		if err != nil {
			return 0, sqlerr.Unwritten(err)
		}
		for _, o := range old {
			requests = append(requests, o.MemberID, o.JobID)
		}
	}
	if len(requests) == 0 {
		return 0, nil
	}
	return m.prune(ctx, func(on mysqldb.DBTX) (int64, error) {
		return mysql.ExecAll(ctx, on, mysqldb.DropCancels, maxReads, requests)
	})
}

func (m maintenance) prune(ctx context.Context, of func(mysqldb.DBTX) (int64, error)) (pruned int, err error) {
	err = m.d.written(ctx, func(on mysqldb.DBTX) error {
		n, err := of(on)
		pruned = int(n)
		return err
	})
	return pruned, err
}
