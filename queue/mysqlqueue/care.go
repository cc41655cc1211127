package mysqlqueue

import (
	"bytes"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// rescueStep is how many jobs one transaction rescues.
const rescueStep = 500

// Standing counts rows.
func (d *database) Standing(ctx context.Context, jobs []engine.ID) (int, error) {
	n, err := d.q.CountJobs(ctx, d.on(d.pool), blobs(jobs))
	return int(n), fault.NoWrite(err)
}

// Payloads reads rows.
func (d *database) Payloads(ctx context.Context, jobs []engine.ID) (map[engine.ID][]byte, error) {
	rows, err := d.q.ReadPayloads(ctx, d.on(d.pool), blobs(jobs))
	payloads := make(map[engine.ID][]byte, len(rows))
	for _, r := range rows {
		payloads[idOf(r.JobID)] = r.Payload
	}
	return payloads, fault.NoWrite(err)
}

// Promote finds them, and moves those that it has locked.
func (d *database) Promote(ctx context.Context, since time.Duration, most int) (promoted int, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		due, err := d.q.DueJobs(ctx, on, -since.Microseconds(), int32(most))
		if err != nil || len(due) == 0 {
			return false, err
		}
		var places, ready []any
		for _, j := range due {
			places = append(places, j.RunUs, j.JobID)
			ready = append(ready, j.Queue, j.Priority, j.JobID)
		}
		if _, err := asks(ctx, on, mysqldb.Unschedule, len(due), places); err != nil {
			return false, err
		}
		promoted = len(due)
		return true, rows(ctx, on, mysqldb.ReadyJobs, len(due), ready)
	})
	if err != nil {
		return 0, err
	}
	return promoted, nil
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
		if !slices.ContainsFunc(living, func(l []byte) bool { return bytes.Equal(l, c) }) {
			suspects = append(suspects, member.ID(idOf(c)))
		}
	}
	return suspects, nil
}

// ClaimsOf reads the rows of claims.
func (d *database) ClaimsOf(ctx context.Context, m member.ID) ([]engine.ID, error) {
	rows, err := d.q.RecordedClaims(ctx, d.on(d.pool), m[:])
	claims := make([]engine.ID, len(rows))
	for i, c := range rows {
		claims[i] = idOf(c)
	}
	return claims, err
}

// Unclaim deletes the rows of the claim, which is what decides who has its jobs.
func (d *database) Unclaim(ctx context.Context, m member.ID, claim engine.ID) (found bool, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		found = false
		jobs, err := d.q.LockClaim(ctx, on, m[:], claim[:])
		if err != nil || len(jobs) == 0 {
			return false, err
		}
		found = true
		if _, err := byKeys(ctx, on, mysqldb.EndClaimed, jobs, m[:], claim[:]); err != nil {
			return false, err
		}
		_, err = d.q.ReadyAgain(ctx, on, jobs)
		return true, err
	})
	return found && err == nil, err
}

// Rescue takes rows of claims, and then looks which of their jobs have not ended.
func (d *database) Rescue(ctx context.Context, gone member.ID, failure string, keepDead bool) (got engine.Rescued, err error) {
	err = d.inTx(ctx, func(on mysqldb.DBTX) (commit bool, err error) {
		got = engine.Rescued{}
		found, err := d.q.ClaimsOf(ctx, on, gone[:], rescueStep)
		if err != nil || len(found) == 0 {
			return false, err
		}
		jobs := make([][]byte, len(found))
		for i, c := range found {
			jobs[i] = c.JobID
		}
		for from := 0; from < len(found); got.Claims++ {
			to := from
			for to < len(found) && bytes.Equal(found[to].ClaimID, found[from].ClaimID) {
				to++
			}
			if _, err := byKeys(ctx, on, mysqldb.EndClaimed, jobs[from:to], gone[:], found[from].ClaimID); err != nil {
				return false, err
			}
			from = to
		}
		return true, d.rescue(ctx, on, jobs, failure, keepDead, &got)
	})
	if err != nil {
		return engine.Rescued{}, err
	}
	return got, nil
}

// rescue has jobs be ready again, or buries them.
func (d *database) rescue(ctx context.Context, on mysqldb.DBTX, jobs [][]byte, failure string, keepDead bool, got *engine.Rescued) error {
	left, err := d.q.LeftOver(ctx, on, jobs)
	if err != nil {
		return err
	}
	var again, over [][]byte
	var dead []any
	for _, j := range left {
		if j.Attempt+1 < j.MaxAttempts {
			again = append(again, j.JobID)
			continue
		}
		over = append(over, j.JobID)
		dead = append(dead, j.JobID, int64(j.Attempt)+1, []byte(failure))
	}
	got.Ready, got.Dead = len(again), len(over)
	if len(again) > 0 {
		if err := d.q.RescueJobs(ctx, on, sql.NullString{String: failure, Valid: true}, again); err != nil {
			return err
		}
		if _, err := d.q.ReadyAgain(ctx, on, again); err != nil {
			return err
		}
	}
	if len(over) == 0 {
		return nil
	}
	keys, err := d.q.KeysOfJobs(ctx, on, over)
	if err != nil {
		return err
	}
	if _, err := asks(ctx, on, mysqldb.BuryJobs, len(over), dead); err != nil {
		return err
	}
	if keepDead {
		if err := d.q.KeepDead(ctx, on, over); err != nil {
			return err
		}
	}
	if _, err := byKeys(ctx, on, mysqldb.FinishJobs, over); err != nil {
		return err
	}
	return freeKeys(ctx, on, keys, false)
}
