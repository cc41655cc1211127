package pgqueue

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// rescueStep is how many claims one transaction takes: each may have thousands of jobs.
const rescueStep = 4

// Standing counts rows.
func (d *database) Standing(ctx context.Context, jobs []engine.ID) (int, error) {
	n, err := d.q.CountJobs(ctx, d.on(d.pool), uuids(jobs))
	return int(n), fault.NoWrite(err)
}

// Promote is one statement, and a transaction for those that their groups have to admit.
func (d *database) Promote(ctx context.Context, most int) (int, error) {
	got, err := d.q.PromoteJobs(ctx, d.on(d.pool), int32(most))
	if err != nil || got.Grouped == 0 {
		return int(got.Promoted), err
	}
	n, err := d.promoteGrouped(ctx, most)
	return int(got.Promoted) + n, err
}

// Suspects reads the claims, and then, in another snapshot, the members: one is committed before anything names it.
func (d *database) Suspects(ctx context.Context) ([]member.ID, error) {
	on := d.on(d.pool)
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
		if !slices.Contains(living, c) {
			suspects = append(suspects, c.Bytes)
		}
	}
	return suspects, nil
}

// Unclaim deletes the claim, which is what decides who has its jobs.
func (d *database) Unclaim(ctx context.Context, m member.ID, claim engine.ID) (found bool, err error) {
	err = d.inTx(ctx, func(on pgdb.DBTX) (commit bool, err error) {
		found = false
		jobs, err := d.q.TakeClaim(ctx, on, uuid(claim), id(m))
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		found = true
		_, err = d.q.ReadyAgain(ctx, on, jobs)
		return true, err
	})
	return found && err == nil, err
}

// Rescue takes claims, and then, in another snapshot, looks which of their jobs have not ended.
func (d *database) Rescue(ctx context.Context, gone member.ID, failure string, keepDead bool) (got engine.Rescued, err error) {
	err = d.inTx(ctx, func(on pgdb.DBTX) (commit bool, err error) {
		taken, err := d.q.TakeClaims(ctx, on, id(gone), rescueStep)
		if err != nil || len(taken) == 0 {
			return false, err
		}
		var jobs []pgtype.UUID
		for _, t := range taken {
			jobs = append(jobs, t...)
		}
		if err := d.freeLast(ctx, on, jobs); err != nil {
			return false, err
		}
		row, err := d.q.RescueJobs(ctx, on, jobs, failure)
		got = engine.Rescued{Claims: len(taken), Ready: int(row.Again), Dead: int(row.Dead)}
		if err == nil && keepDead && got.Dead > 0 {
			err = d.q.KeepDead(ctx, on, jobs)
		}
		return true, err
	})
	if err != nil {
		return engine.Rescued{}, err
	}
	return got, nil
}

// inTx runs fn in a READ COMMITTED transaction, and commits it where fn says so.
func (d *database) inTx(ctx context.Context, fn func(pgdb.DBTX) (commit bool, err error)) error {
	return d.inPgxTx(ctx, func(tx pgx.Tx) (bool, error) { return fn(d.on(tx)) })
}

func (d *database) inPgxTx(ctx context.Context, fn func(pgx.Tx) (commit bool, err error)) error {
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return fault.NoWrite(err)
	}
	commit, err := fn(tx)
	if err != nil || !commit {
		ctx, cancel := ending(ctx)
		defer cancel()
		_ = tx.Rollback(ctx) // where that fails, the connection is closed
		return fault.NoWrite(err)
	}
	return tx.Commit(ctx)
}
