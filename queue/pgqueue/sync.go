package pgqueue

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// waitForRows bounds how long a transaction that ends jobs waits for locks.
func waitForRows(x *driver.SyncBatch) string {
	return fmt.Sprintf("set local lock_timeout = '%dms'", x.RowWait().Milliseconds())
}

// Sync is one transaction in one round trip: how jobs ended first, so that a claim that was taken
// away stops nothing else. If jobs are rescheduled or discarded the commit is a second one: it
// depends on whether others want them cancelled.
func (d *database) Sync(ctx context.Context, x *driver.SyncBatch) (got driver.SyncResult, err error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return got, sqlerr.Unwritten(err)
	}
	defer conn.Release() // which closes it if the transaction is still open
	begin := []string{postgres.BeginReadCommitted}
	if x.Ends() > 0 {
		begin = append(begin, waitForRows(x))
	}
	var batch pgx.Batch
	me := postgres.UUID(x.Member)
	d.queueTake(&batch, x)
	d.queueHistory(&batch, x)
	d.queueKeys(&batch, x)
	d.queueFinished(&batch, x, &got.Completed)
	d.queueCancels(&batch, x, &got)
	d.queueDeferred(&batch, x, &got)
	d.queueBuried(&batch, x, &got)
	d.queueHistoryOfDiscarded(&batch, x)
	if len(x.Closed) > 0 {
		backend := int32(conn.Conn().PgConn().PID())
		if d.members.Broken() != x.Broken { // conn was taken before: a pool looks at a connection that was idle
			backend = 0
		}
		batch.Queue(d.SQL(pgdb.CloseClaims), postgres.UUIDs(x.Closed), me, backend)
	}
	if a := x.Claim; a != nil {
		s := spans(a.From)
		batch.Queue(d.SQL(pgdb.ClaimJobs), int32(a.Inline), s.priorities, s.times, s.lasts, a.Queue, postgres.UUIDs(a.Not), me, a.Heartbeat, int32(a.Max), postgres.UUID(a.Claim)).Query(func(rows pgx.Rows) (err error) {
			got.Jobs, got.Void, err = jobs(rows, a)
			return err
		})
	}
	if len(x.Rescheduled)+len(x.Discarded) > 0 {
		return d.unlessCancelled(ctx, conn.Conn(), begin, &batch, &got)
	}
	batch.Queue("commit")
	if err := postgres.SendTx(ctx, conn.Conn(), begin, &batch); err != nil {
		postgres.RollbackConn(ctx, conn.Conn())
		return driver.SyncResult{}, err
	}
	return got, nil
}

// unlessCancelled commits a transaction if others want none of its jobs cancelled.
func (d *database) unlessCancelled(
	ctx context.Context, conn *pgx.Conn, begin []string, batch *pgx.Batch, got *driver.SyncResult,
) (driver.SyncResult, error) {
	if err := postgres.SendTx(ctx, conn, begin, batch); err != nil {
		postgres.RollbackConn(ctx, conn)
		return driver.SyncResult{}, sqlerr.Unwritten(err)
	}
	if len(got.Cancelled) > 0 {
		postgres.RollbackConn(ctx, conn)
		return driver.SyncResult{Cancelled: got.Cancelled}, nil
	}
	if _, err := conn.Exec(ctx, "commit"); err != nil {
		postgres.RollbackConn(ctx, conn)
		return driver.SyncResult{}, err
	}
	return *got, nil
}

// queueCancels locks the claims of jobs that are to be rescheduled or discarded, and reads which of
// them others want cancelled.
func (d *database) queueCancels(batch *pgx.Batch, x *driver.SyncBatch, got *driver.SyncResult) {
	all := x.Unfinished()
	if len(all) == 0 {
		return
	}
	jobs, of, claims := positions(all)
	me := postgres.UUID(x.Member)
	batch.Queue(d.SQL(pgdb.LockClaims), claims, me)
	batch.Queue(d.SQL(pgdb.CancelsHeld), jobs, of, me, claims).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
		got.Cancelled = idsOf(found)
		return err
	})
}

func (d *database) queueFinished(batch *pgx.Batch, x *driver.SyncBatch, finished *int) {
	if len(x.Completed) == 0 {
		return
	}
	jobs, of, claims := positions(x.Completed)
	batch.Queue(d.SQL(pgdb.FinishJobs), claims, postgres.UUID(x.Member), jobs, of).QueryRow(count(finished))
}

func (d *database) queueDeferred(batch *pgx.Batch, x *driver.SyncBatch, got *driver.SyncResult) {
	n := len(x.Rescheduled)
	if n == 0 {
		return
	}
	all, attempts, failures, delays := make([]driver.Position, n), make([]int16, n), make([]string, n), make([]int64, n)
	since, records := make([]pgtype.Timestamptz, n), make([]bool, n)
	for i, e := range x.Rescheduled {
		all[i], attempts[i], failures[i], records[i], delays[i] = e.Position, e.Attempt, e.Failure, e.Records, e.DelayMicros()
		since[i] = pgtype.Timestamptz{Time: e.ReadyAt, Valid: !e.ReadyAt.IsZero()}
	}
	jobs, of, claims := positions(all)
	batch.Queue(d.SQL(pgdb.LockJobs), jobs, of, claims, postgres.UUID(x.Member))
	batch.Queue(d.SQL(pgdb.RescheduleJobs), claims, postgres.UUID(x.Member), jobs, of, attempts, failures, delays, since, records).QueryRow(count(&got.Rescheduled))
}

func (d *database) queueBuried(batch *pgx.Batch, x *driver.SyncBatch, got *driver.SyncResult) {
	n := len(x.Discarded)
	if n == 0 {
		return
	}
	all, attempts, failures := make([]driver.Position, n), make([]int16, n), make([]string, n)
	for i, e := range x.Discarded {
		all[i], attempts[i], failures[i] = e.Position, e.Attempt, e.Failure
	}
	jobs, of, claims := positions(all)
	batch.Queue(d.SQL(pgdb.DiscardJobs), claims, postgres.UUID(x.Member), jobs, of, attempts, failures).QueryRow(count(&got.Discarded))
}

// positions splits positions into jobs, the claim of each, and all claims once.
func positions(all []driver.Position) (jobs, of, claims []pgtype.UUID) {
	jobs, of = make([]pgtype.UUID, len(all)), make([]pgtype.UUID, len(all))
	for i, p := range all {
		jobs[i], of[i] = postgres.UUID(p.Job), postgres.UUID(p.Claim)
		if i == 0 || of[i] != of[i-1] && !slices.Contains(claims, of[i]) {
			claims = append(claims, of[i])
		}
	}
	return jobs, of, claims
}

func count(into *int) func(pgx.Row) error {
	return func(row pgx.Row) error { return row.Scan(into) }
}

// queueHistory writes down jobs that are about to be finished.
func (d *database) queueHistory(batch *pgx.Batch, x *driver.SyncBatch) {
	if len(x.History) == 0 {
		return
	}
	all, attempts := make([]driver.Position, len(x.History)), make([]int16, len(x.History))
	outcomes, reasons := make([]int16, len(x.History)), make([]string, len(x.History))
	for i, k := range x.History {
		all[i], attempts[i], outcomes[i], reasons[i] = k.Position, k.Attempt, k.Outcome, k.Reason
	}
	jobs, of, claims := positions(all)
	batch.Queue(d.SQL(pgdb.KeepFinished), jobs, of, attempts, outcomes, reasons, claims, postgres.UUID(x.Member))
}

// queueHistoryOfDiscarded writes down jobs that were discarded.
func (d *database) queueHistoryOfDiscarded(batch *pgx.Batch, x *driver.SyncBatch) {
	if !x.KeepDiscarded || len(x.Discarded) == 0 {
		return
	}
	all := make([]driver.ID, len(x.Discarded))
	for i, b := range x.Discarded {
		all[i] = b.Job
	}
	batch.Queue(d.SQL(pgdb.KeepDead), postgres.UUIDs(all))
}
