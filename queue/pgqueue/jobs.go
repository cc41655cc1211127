package pgqueue

import (
	"context"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// BeginJobs is one statement.
func (d *database) BeginJobs(ctx context.Context, m member.ID, all []driver.Position) (begun, locked []driver.ID, err error) {
	jobs, of, claims := positions(all)
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
func (d *database) Payloads(ctx context.Context, jobs []driver.ID) (map[driver.ID][]byte, error) {
	rows, err := d.q.ReadPayloads(ctx, d.db, postgres.UUIDs(jobs))
	payloads := make(map[driver.ID][]byte, len(rows))
	for _, r := range rows {
		payloads[r.JobID.Bytes] = r.Payload
	}
	return payloads, sqlerr.Unwritten(err)
}

// CountJobs counts rows, and waits until the synchronous standbys have them. One that waits for a
// row is a transaction, so that no default of the session's can be in the way.
func (d *database) CountJobs(ctx context.Context, jobs []driver.ID, wait bool) (stand int, err error) {
	if wait {
		err = d.inTx(ctx, driver.LongWait, func(on pgdb.DBTX) (commit bool, err error) {
			found, err := d.q.AwaitJob(ctx, on, postgres.UUID(jobs[0]))
			stand = len(found)
			return false, err
		})
		return stand, err
	}
	n, err := d.q.CountJobs(ctx, d.db, postgres.UUIDs(jobs))
	if err == nil && n > 0 {
		err = d.q.ConfirmCommits(ctx, d.db)
	}
	return int(n), sqlerr.Unwritten(err)
}
