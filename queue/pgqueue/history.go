package pgqueue

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// queueKept writes down jobs that are about to be finished.
func (d *database) queueKept(batch *pgx.Batch, x *engine.Exchange) {
	if len(x.Kept) == 0 {
		return
	}
	all, outcomes, reasons := make([]engine.Place, len(x.Kept)), make([]int16, len(x.Kept)), make([]string, len(x.Kept))
	for i, k := range x.Kept {
		all[i], outcomes[i], reasons[i] = k.Place, k.Outcome, k.Reason
	}
	jobs, of, claims := places(all)
	batch.Queue(d.SQL(pgdb.KeepFinished), jobs, of, outcomes, reasons, claims, postgres.UUID(x.Member))
}

// queueKeptDead writes down jobs that were buried.
func (d *database) queueKeptDead(batch *pgx.Batch, x *engine.Exchange) {
	if !x.KeepDead || len(x.Buried) == 0 {
		return
	}
	all := make([]engine.ID, len(x.Buried))
	for i, b := range x.Buried {
		all[i] = b.Job
	}
	batch.Queue(d.SQL(pgdb.KeepDead), postgres.UUIDs(all))
}

// PruneHistory goes along the key.
func (d *database) PruneHistory(ctx context.Context, days, most int) (int, error) {
	n, err := d.q.PruneHistory(ctx, d.db, int32(days), int32(most))
	return int(n), err
}
