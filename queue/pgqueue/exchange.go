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
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// waitForRows bounds how long a transaction that ends jobs waits for locks.
func waitForRows(x *engine.Exchange) string {
	return fmt.Sprintf("set local lock_timeout = '%dms'", x.RowWait().Milliseconds())
}

// Exchange is one transaction in one round trip: how jobs ended first, so that a claim that was taken away stops nothing else. If jobs are
// deferred or buried the commit is a second one: it depends on whether others want them cancelled.
func (d *database) Exchange(ctx context.Context, x *engine.Exchange) (got engine.Exchanged, err error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return got, sqlerr.Unwritten(err)
	}
	defer conn.Release() // which closes it where the transaction is still open
	var batch pgx.Batch
	batch.Queue(postgres.BeginReadCommitted)
	if x.Ends() > 0 {
		batch.Queue(waitForRows(x))
	}
	me := postgres.UUID(x.Member)
	d.queueTake(&batch, x)
	d.queueKept(&batch, x)
	d.queueKeys(&batch, x)
	d.queueFinished(&batch, x, &got.Finished)
	d.queueCancels(&batch, x, &got)
	d.queueDeferred(&batch, x, &got)
	d.queueBuried(&batch, x, &got)
	d.queueKeptDead(&batch, x)
	if len(x.Closed) > 0 {
		shut := d.SQL(pgdb.CloseClaims)
		if d.Broken() != x.Broken { // conn was taken before: a pool looks at a connection that was idle
			shut = d.SQL(pgdb.CloseEndedClaims)
		}
		batch.Queue(shut, postgres.UUIDs(x.Closed), me)
	}
	if a := x.Ask; a != nil {
		s := spans(a.From)
		batch.Queue(d.SQL(pgdb.ClaimJobs), int32(a.Inline), s.priorities, s.times, s.lasts, a.Queue, postgres.UUIDs(a.Not), me, a.Beat, int32(a.Most), postgres.UUID(a.Claim)).Query(func(rows pgx.Rows) (err error) {
			got.Jobs, got.Void, err = jobs(rows, a)
			return err
		})
	}
	if len(x.Deferred)+len(x.Buried) > 0 {
		return d.unlessCancelled(ctx, conn.Conn(), &batch, &got)
	}
	batch.Queue("commit")
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		postgres.RollbackConn(ctx, conn.Conn())
		return engine.Exchanged{}, err
	}
	return got, nil
}

// unlessCancelled commits a transaction if others want none of its jobs cancelled.
func (d *database) unlessCancelled(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch, got *engine.Exchanged) (engine.Exchanged, error) {
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		postgres.RollbackConn(ctx, conn)
		return engine.Exchanged{}, sqlerr.Unwritten(err)
	}
	if len(got.Cancelled) > 0 {
		postgres.RollbackConn(ctx, conn)
		return engine.Exchanged{Cancelled: got.Cancelled}, nil
	}
	if _, err := conn.Exec(ctx, "commit"); err != nil {
		postgres.RollbackConn(ctx, conn)
		return engine.Exchanged{}, err
	}
	return *got, nil
}

// queueCancels locks the claims of jobs that are to be deferred or buried, and reads which of them others want cancelled.
func (d *database) queueCancels(batch *pgx.Batch, x *engine.Exchange, got *engine.Exchanged) {
	all := make([]engine.Place, 0, len(x.Deferred)+len(x.Buried))
	for i := range x.Deferred {
		all = append(all, x.Deferred[i].Place)
	}
	for i := range x.Buried {
		all = append(all, x.Buried[i].Place)
	}
	if len(all) == 0 {
		return
	}
	jobs, of, claims := places(all)
	me := postgres.UUID(x.Member)
	batch.Queue(d.SQL(pgdb.LockClaims), claims, me)
	batch.Queue(d.SQL(pgdb.CancelsHeld), jobs, of, me, claims).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
		got.Cancelled = ids(found)
		return err
	})
}

func (d *database) queueFinished(batch *pgx.Batch, x *engine.Exchange, finished *int) {
	if len(x.Finished) == 0 {
		return
	}
	jobs, of, claims := places(x.Finished)
	batch.Queue(d.SQL(pgdb.FinishJobs), claims, postgres.UUID(x.Member), jobs, of).QueryRow(count(finished))
}

func (d *database) queueDeferred(batch *pgx.Batch, x *engine.Exchange, got *engine.Exchanged) {
	n := len(x.Deferred)
	if n == 0 {
		return
	}
	all, attempts, failures, delays := make([]engine.Place, n), make([]int16, n), make([]string, n), make([]int64, n)
	since, records := make([]pgtype.Timestamptz, n), make([]bool, n)
	for i, e := range x.Deferred {
		all[i], attempts[i], failures[i], records[i] = e.Place, e.Attempt, e.Failure, e.Records
		if delays[i] = e.Delay.Microseconds(); e.Delay > 0 {
			delays[i] = max(delays[i], 1)
		}
		since[i] = pgtype.Timestamptz{Time: e.ReadyAt, Valid: !e.ReadyAt.IsZero()}
	}
	jobs, of, claims := places(all)
	batch.Queue(d.SQL(pgdb.LockJobs), jobs, of, claims, postgres.UUID(x.Member))
	batch.Queue(d.SQL(pgdb.DeferJobs), claims, postgres.UUID(x.Member), jobs, of, attempts, failures, delays, since, records).QueryRow(count(&got.Deferred))
}

func (d *database) queueBuried(batch *pgx.Batch, x *engine.Exchange, got *engine.Exchanged) {
	n := len(x.Buried)
	if n == 0 {
		return
	}
	all, attempts, failures := make([]engine.Place, n), make([]int16, n), make([]string, n)
	for i, e := range x.Buried {
		all[i], attempts[i], failures[i] = e.Place, e.Attempt, e.Failure
	}
	jobs, of, claims := places(all)
	batch.Queue(d.SQL(pgdb.BuryJobs), claims, postgres.UUID(x.Member), jobs, of, attempts, failures).QueryRow(count(&got.Buried))
}

// places are jobs, the claim of each, and all claims once.
func places(all []engine.Place) (jobs, of, claims []pgtype.UUID) {
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

// jobs reads what was claimed, and counts the rows that are of no job. There are few kinds, so that each is kept as a string
// once. A time that is infinite is read as the zero time.
func jobs(rows pgx.Rows, ask *engine.Ask) (all []engine.Job, void int, err error) {
	kinds := make(map[string]string)
	var job pgtype.UUID
	var kind pgtype.DriverBytes
	var enqueued, ready pgtype.Timestamptz
	for rows.Next() {
		if all == nil {
			all = make([]engine.Job, 0, ask.Most)
		}
		var j engine.Job
		if err := rows.Scan(&job, &kind, &j.Priority, &j.Attempt, &j.MaxAttempts, &enqueued, &ready, &j.Bytes, &j.Payload, &j.Keyed, &j.Recorded); err != nil {
			return nil, 0, err
		}
		if kind == nil {
			void++
			continue
		}
		j.EnqueuedAt, j.ReadyAt = enqueued.Time, ready.Time
		known, ok := kinds[string(kind)]
		if !ok {
			known = string(kind)
			kinds[known] = known
		}
		j.ID, j.Kind, j.Unread = job.Bytes, known, j.Bytes > ask.Inline
		all = append(all, j)
	}
	return all, void, rows.Err()
}
