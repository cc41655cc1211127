package pgqueue

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// jobsOfClaim is about how many jobs a claim has, for Adopt. It may have thousands.
const jobsOfClaim = 125

// maintenance is driver.Maintenance.
type maintenance struct{ d *database }

// Promote is one statement, or a transaction for groups.
func (m maintenance) Promote(ctx context.Context, r *driver.PromoteRequest) (promoted int, err error) {
	var n int64
	switch {
	case len(r.Groups) > 0:
		return m.promoteGroups(ctx, r)
	case len(r.Jobs) > 0:
		at, jobs := make([]time.Time, len(r.Jobs)), make([]pgtype.UUID, len(r.Jobs))
		for i, j := range r.Jobs {
			at[i], jobs[i] = j.RunAt, postgres.UUID(j.Job)
		}
		n, err = m.d.q.PromoteThese(ctx, m.d.db, at, jobs)
	case r.Urgent:
		n, err = m.d.q.PromoteUrgent(ctx, m.d.db, int32(r.Max))
	case r.OfEach > 0:
		n, err = m.d.q.PromoteOfEach(ctx, m.d.db, int32(r.OfEach), int32(r.Max))
	default:
		n, err = m.d.q.PromoteJobs(ctx, m.d.db, float64(r.Since.Microseconds()), int32(r.Max))
	}
	return int(n), err
}

// Prune is one statement. Only that for DeadJob waits for rows, briefly.
func (m maintenance) Prune(ctx context.Context, r *driver.PruneRequest) (pruned int, err error) {
	var n int64
	switch r.Kind {
	case driver.DeadJob:
		err = m.d.inTx(ctx, driver.LongWait, func(on pgdb.DBTX) (commit bool, err error) {
			n, err = m.d.q.DeleteDead(ctx, on, postgres.UUID(r.Job))
			return n > 0, err
		})
	case driver.DeadJobs:
		n, err = m.d.q.PurgeDead(ctx, m.d.db, r.Queue, r.Age.Microseconds(), int32(r.Max))
	case driver.OldHistory:
		n, err = m.d.q.PruneHistory(ctx, m.d.db, int32(r.Age/driver.Day), int32(r.Max))
	case driver.JobRequests:
		err = m.d.q.DropCancels(ctx, m.d.db, postgres.UUID(r.Member), postgres.UUIDs(r.Jobs))
	case driver.StaleRequests:
		n, err = m.d.q.PruneCancels(ctx, m.d.db)
	case driver.GoneMembers:
		n, err = m.d.q.SweepMembers(ctx, m.d.db, r.Age.Microseconds(), int32(r.Max))
	}
	return int(n), err
}

// Suspects reads the claims, and then, in another snapshot, the members: one is committed before
// anything names it.
func (m maintenance) Suspects(ctx context.Context) ([]member.ID, error) {
	claimants, err := m.d.q.Claimants(ctx, m.d.db)
	if err != nil || len(claimants) == 0 {
		return nil, err
	}
	living, err := m.d.q.LivingMembers(ctx, m.d.db, claimants)
	if err != nil {
		return nil, err
	}
	var suspects []member.ID
	for _, c := range claimants {
		if !slices.Contains(living, c) {
			suspects = append(suspects, c.Bytes)
		}
	}
	return suspects, nil
}

// ClaimsOf reads the rows of claims.
func (m maintenance) ClaimsOf(ctx context.Context, of member.ID) ([]driver.ID, error) {
	rows, err := m.d.q.RecordedClaims(ctx, m.d.db, postgres.UUID(of))
	claims := make([]driver.ID, len(rows))
	for i, c := range rows {
		claims[i] = c.Bytes
	}
	return claims, err
}

// Adopt takes claims, and then, in another snapshot, looks which of their jobs have not ended.
func (m maintenance) Adopt(ctx context.Context, r *driver.AdoptRequest) (claims []driver.ID, orphans []driver.Orphan, err error) {
	from, heir := postgres.UUID(r.From), postgres.UUID(r.Heir)
	err = m.d.inTx(ctx, 0, func(on pgdb.DBTX) (commit bool, err error) {
		taken, err := m.d.q.AdoptClaims(ctx, on, pgdb.AdoptClaimsParams{
			Heir: heir, MemberID: from, OnlyID: postgres.UUID(r.Claim), Every: r.Claim == (driver.ID{}), Most: int32(max(r.Max/jobsOfClaim, 1)),
		})
		if err != nil || len(taken) == 0 {
			return false, err
		}
		var jobs, of []pgtype.UUID
		for _, t := range taken {
			claims = append(claims, t.ClaimID.Bytes)
			jobs, of = append(jobs, t.JobIds...), append(of, slices.Repeat([]pgtype.UUID{t.ClaimID}, len(t.JobIds))...)
		}
		if err := m.d.q.AdoptCancels(ctx, on, heir, from, jobs); err != nil {
			return false, err
		}
		found, err := m.d.q.OrphanJobs(ctx, on, jobs, of)
		for _, f := range found {
			orphans = append(orphans, driver.Orphan{
				Position: driver.Position{Claim: f.ClaimID.Bytes, Job: f.JobID.Bytes, Keyed: f.Keyed}, Queue: f.Queue, Kind: f.Kind,
				Priority: f.Priority, Attempt: f.Attempt, MaxAttempts: f.MaxAttempts, Begun: f.Begun, EnqueuedAt: f.EnqueuedAt,
			})
		}
		return true, err
	})
	if err != nil {
		return nil, nil, err
	}
	return claims, orphans, nil
}

// CancelRequests goes along the key.
func (m maintenance) CancelRequests(ctx context.Context, of member.ID, after driver.ID) ([]driver.CancelRequest, error) {
	found, err := m.d.q.CancelsOf(ctx, m.d.db, postgres.UUID(of), postgres.UUID(after))
	requests := make([]driver.CancelRequest, len(found))
	for i, f := range found {
		requests[i] = driver.CancelRequest{Job: f.JobID.Bytes, Active: f.Stands}
	}
	return requests, sqlerr.Unwritten(err)
}

// DueJobs reads the first rows.
func (m maintenance) DueJobs(ctx context.Context, r *driver.DueRequest) ([]driver.DueJob, error) {
	rows, err := m.d.q.DueJobs(ctx, m.d.db, pgdb.DueJobsParams{
		SinceUs: float64(r.Since.Microseconds()), Queues: append([]string{}, r.Queues...), OfThese: r.OfThese, Most: int32(r.Max),
	})
	due := make([]driver.DueJob, len(rows))
	for i, r := range rows {
		due[i] = driver.DueJob{DueCursor: driver.DueCursor{RunAt: r.RunAt, Job: r.JobID.Bytes}, Queue: r.Queue}
	}
	return due, err
}

// Postpone is one statement.
func (m maintenance) Postpone(ctx context.Context, j driver.DueCursor, after time.Duration) error {
	return m.d.q.PostponeJob(ctx, m.d.db, after.Microseconds(), j.RunAt, postgres.UUID(j.Job))
}

// DueGroups reads the first rows after a cursor.
func (m maintenance) DueGroups(ctx context.Context, after driver.DueCursor) (groups []driver.Group, last driver.DueCursor, err error) {
	rows, err := m.d.q.DueGroups(ctx, m.d.db, after.RunAt, postgres.UUID(after.Job), driver.MaxDueRead)
	for _, r := range rows {
		if r.RunAt != nil {
			last = driver.DueCursor{RunAt: *r.RunAt, Job: r.JobID.Bytes}
		} else {
			groups = append(groups, driver.Group{Queue: r.Queue, Key: r.GroupKey})
		}
	}
	return groups, last, err
}

// promoteGroups has jobs come to their groups in the order of their times.
func (m maintenance) promoteGroups(ctx context.Context, r *driver.PromoteRequest) (n int, err error) {
	p := pgdb.TakeDueGroupedParams{AfterAt: r.After.RunAt, AfterJob: postgres.UUID(r.After.Job), Most: int32(r.Max)}
	for _, g := range r.Groups {
		p.Queues, p.GroupKeys = append(p.Queues, g.Queue), append(p.GroupKeys, g.Key)
	}
	err = m.d.inTx(ctx, r.Wait, func(on pgdb.DBTX) (commit bool, err error) {
		due, err := m.d.q.TakeDueGrouped(ctx, on, p)
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
		return true, m.d.assignGroups(ctx, on, comers(due), true)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// comers are jobs whose time has come. One whose row was deleted by hand, which has no limit, is
// left out.
func comers(due []pgdb.TakeDueGroupedRow) []driver.Insert {
	jobs := make([]driver.Insert, 0, len(due))
	for _, j := range due {
		if j.GroupMost > 0 {
			jobs = append(jobs, driver.Insert{ID: j.JobID.Bytes, Queue: j.Queue, Priority: j.Priority, Group: j.GroupKey, GroupLimit: j.GroupMost})
		}
	}
	return jobs
}
