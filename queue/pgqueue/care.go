package pgqueue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// jobsOfClaim is about how many jobs a claim has, for Adopt. It may have thousands.
const jobsOfClaim = 125

// Standing counts rows, and waits until the synchronous standbys have them.
func (d *database) Standing(ctx context.Context, jobs []engine.ID) (int, error) {
	n, err := d.q.CountJobs(ctx, d.db, postgres.UUIDs(jobs))
	if err == nil && n > 0 {
		err = d.q.ConfirmCommits(ctx, d.db)
	}
	return int(n), sqlerr.Unwritten(err)
}

// BeginJobs is one statement.
func (d *database) BeginJobs(ctx context.Context, m member.ID, all []engine.Place) (begun, locked []engine.ID, err error) {
	jobs, of, claims := places(all)
	rows, err := d.q.BeginJobs(ctx, d.db, pgdb.BeginJobsParams{ClaimIds: claims, MemberID: postgres.UUID(m), JobIds: jobs, OfClaims: of})
	for _, r := range rows {
		if r.Begun {
			begun = append(begun, r.JobID.Bytes)
		} else {
			locked = append(locked, r.JobID.Bytes)
		}
	}
	return begun, locked, err
}

// Payloads reads rows.
func (d *database) Payloads(ctx context.Context, jobs []engine.ID) (map[engine.ID][]byte, error) {
	rows, err := d.q.ReadPayloads(ctx, d.db, postgres.UUIDs(jobs))
	payloads := make(map[engine.ID][]byte, len(rows))
	for _, r := range rows {
		payloads[r.JobID.Bytes] = r.Payload
	}
	return payloads, sqlerr.Unwritten(err)
}

// Promote is one statement.
func (d *database) Promote(ctx context.Context, since time.Duration, most int) (int, error) {
	n, err := d.q.PromoteJobs(ctx, d.db, float64(since.Microseconds()), int32(most))
	return int(n), err
}

// PromoteUrgent is one statement.
func (d *database) PromoteUrgent(ctx context.Context, most int) (int, error) {
	n, err := d.q.PromoteUrgent(ctx, d.db, int32(most))
	return int(n), err
}

// Suspects reads the claims, and then, in another snapshot, the members: one is committed before anything names it.
func (d *database) Suspects(ctx context.Context) ([]member.ID, error) {
	claimants, err := d.q.Claimants(ctx, d.db)
	if err != nil || len(claimants) == 0 {
		return nil, err
	}
	living, err := d.q.LivingMembers(ctx, d.db, claimants)
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
func (d *database) ClaimsOf(ctx context.Context, m member.ID) ([]engine.ID, error) {
	rows, err := d.q.RecordedClaims(ctx, d.db, postgres.UUID(m))
	claims := make([]engine.ID, len(rows))
	for i, c := range rows {
		claims[i] = c.Bytes
	}
	return claims, err
}

// Unclaim deletes the claim, which is what decides who has its jobs.
func (d *database) Unclaim(ctx context.Context, m member.ID, claim engine.ID) (found bool, cancelled []engine.ID, err error) {
	err = d.inTx(ctx, 0, func(on pgdb.DBTX) (commit bool, err error) {
		found, cancelled = false, nil
		jobs, err := d.q.TakeClaim(ctx, on, postgres.UUID(claim), postgres.UUID(m))
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		found = true
		asked, err := d.q.CancelsAmong(ctx, on, jobs, postgres.UUID(m))
		if cancelled = ids(asked); err != nil || len(asked) > 0 {
			return false, err
		}
		_, err = d.q.ReadyAgain(ctx, on, jobs)
		return true, err
	})
	return found && err == nil, cancelled, err
}

// Adopt takes claims, and then, in another snapshot, looks which of their jobs have not ended.
func (d *database) Adopt(ctx context.Context, gone, heir member.ID, most int) (claims []engine.ID, orphans []engine.Orphan, err error) {
	err = d.inTx(ctx, 0, func(on pgdb.DBTX) (commit bool, err error) {
		taken, err := d.q.AdoptClaims(ctx, on, postgres.UUID(heir), postgres.UUID(gone), int32(max(most/jobsOfClaim, 1)))
		if err != nil || len(taken) == 0 {
			return false, err
		}
		var jobs, of []pgtype.UUID
		for _, t := range taken {
			claims = append(claims, t.ClaimID.Bytes)
			jobs, of = append(jobs, t.JobIds...), append(of, slices.Repeat([]pgtype.UUID{t.ClaimID}, len(t.JobIds))...)
		}
		if err := d.q.AdoptCancels(ctx, on, postgres.UUID(heir), postgres.UUID(gone), jobs); err != nil {
			return false, err
		}
		found, err := d.q.OrphanJobs(ctx, on, jobs, of)
		for _, f := range found {
			orphans = append(orphans, engine.Orphan{
				Place: engine.Place{Claim: f.ClaimID.Bytes, Job: f.JobID.Bytes, Keyed: f.Keyed}, Queue: f.Queue, Kind: f.Kind,
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

// inTx is postgres.InTx on a connection of dblock's own.
func (d *database) inTx(ctx context.Context, wait time.Duration, fn func(pgdb.DBTX) (commit bool, err error)) error {
	return postgres.InTx(ctx, d.pool, wait, func(tx pgx.Tx) (bool, error) { return fn(d.On(tx)) })
}
