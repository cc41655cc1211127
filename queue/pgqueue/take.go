package pgqueue

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dblock-go/dblock/queue/internal/engine"
)

// queueTake claims a job that waits, if it is still where it was seen.
func (d *database) queueTake(batch *pgx.Batch, x *engine.Exchange) {
	t := x.Take
	if t == nil {
		return
	}
	j := &t.Job
	me, claim, job := id(x.Member), uuid(t.Claim), uuid(j.ID)
	switch j.State {
	case engine.Ready:
		batch.Queue(d.takeReady, claim, me, j.Queue, j.Priority, j.At, job)
	case engine.Scheduled, engine.Retrying:
		batch.Queue(d.takeScheduled, claim, me, j.At, job, j.Admitted)
	case engine.Blocked:
		batch.Queue(d.lock, []pgtype.UUID{job})
		batch.Queue(d.takeBlocked, claim, me, j.Queue, j.GroupKey, j.Seq, job)
	}
}
