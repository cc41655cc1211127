package pgqueue

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// queueTake claims a job that waits, if it is still where it was seen.
func (d *database) queueTake(batch *pgx.Batch, x *engine.Exchange) {
	t := x.Take
	if t == nil {
		return
	}
	j := &t.Job
	me, claim, job := postgres.UUID(x.Member), postgres.UUID(t.Claim), postgres.UUID(j.ID)
	switch j.State {
	case engine.Ready:
		batch.Queue(d.SQL(pgdb.TakeReadyJob), claim, me, j.Queue, j.Priority, j.At, job)
	case engine.Scheduled, engine.Retrying:
		batch.Queue(d.SQL(pgdb.TakeScheduledJob), claim, me, j.At, job, j.Admitted)
	case engine.Blocked:
		batch.Queue(d.SQL(pgdb.LockGroups), []pgtype.UUID{job})
		batch.Queue(d.SQL(pgdb.TakeBlockedJob), claim, me, j.Queue, j.GroupKey, j.Seq, job)
	}
}
