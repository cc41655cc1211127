package mysqlqueue

import (
	"context"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// keep writes down jobs that are about to be finished: those whose claims were the member's.
func (e *exchange) keep(x *engine.Exchange, ours [][]byte) error {
	by := make(map[int16][][]byte)
	for i := range x.Kept {
		if k := &x.Kept[i]; has(ours, k.Job) {
			by[k.Outcome] = append(by[k.Outcome], k.Job[:])
		}
	}
	for _, outcome := range []int16{engine.OutcomeFinished, engine.OutcomeCancelled} {
		if jobs := by[outcome]; len(jobs) > 0 {
			if err := e.d.q.KeepFinished(e.ctx, e.on, outcome, jobs); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepDead writes down jobs that were buried.
func (e *exchange) keepDead(x *engine.Exchange, ours [][]byte) error {
	if !x.KeepDead {
		return nil
	}
	return e.d.q.KeepDead(e.ctx, e.on, ours)
}

// PruneHistory goes along the key.
func (d *database) PruneHistory(ctx context.Context, days, most int) (pruned int, err error) {
	err = d.written(ctx, func(on mysqldb.DBTX) error {
		n, err := d.q.PruneHistory(ctx, on, int64(-days), int32(most))
		pruned = int(n)
		return err
	})
	return pruned, err
}
