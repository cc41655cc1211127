package mysqlqueue

import (
	"context"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// keep writes down jobs that are about to be finished: those whose claims were the member's.
func (e *exchange) keep(x *engine.Exchange, ours [][]byte) error {
	var finished [][]byte
	var cancelled []any
	for i := range x.Kept {
		switch k := &x.Kept[i]; {
		case !has(ours, k.Job):
		case k.Outcome == engine.OutcomeCompleted:
			finished = append(finished, k.Job[:])
		default:
			cancelled = append(cancelled, k.Job[:], []byte(k.Reason))
		}
	}
	if len(finished) > 0 {
		if err := e.d.q.KeepFinished(e.ctx, e.on, finished); err != nil {
			return err
		}
	}
	_, err := mysql.ExecAll(e.ctx, e.on, mysqldb.KeepCancelled, mostAsks, cancelled)
	return err
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
