package pginventory

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// Move takes two round trips, as Transact does.
func (d *database) Move(ctx context.Context, keys []string, decide func(map[string][]engine.Row) engine.Moves) error {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return fault.NoWrite(err)
	}
	defer conn.Release() // which closes it where the transaction is still open
	recorded := make(map[string][]engine.Row)
	var batch pgx.Batch
	batch.Queue(beginReadCommitted)
	batch.Queue(bound, lockTimeout(ctx))
	d.queueKeys(&batch, pgdb.LockReservations, keys, recorded)
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		rollback(ctx, conn)
		return fault.NoWrite(err)
	}
	moves := decide(recorded)
	if moves.IsEmpty() {
		rollback(ctx, conn)
		return nil
	}
	err = commit(ctx, conn, d.written(moves))
	if err != nil {
		rollback(ctx, conn)
	}
	if len(moves.Insert) > 0 {
		err = orKeyTaken(err)
	}
	return err
}

// written comes to new keys last, as Transact does, and waits no longer for who is writing them.
func (d *database) written(moves engine.Moves) *pgx.Batch {
	var batch pgx.Batch
	if len(moves.Set) > 0 {
		keys, states, holds := setColumns(moves.Set)
		batch.Queue(d.sql(pgdb.SetReservations), keys, states, holds)
	}
	if len(moves.Uncount) > 0 {
		skus, buyers, qtys, _ := countColumns(moves.Uncount)
		batch.Queue(d.sql(pgdb.LockQuotas), skus, buyers)
		batch.Queue(d.sql(pgdb.UncountQuotas), skus, buyers, qtys)
	}
	if len(moves.Return) > 0 {
		skus, buckets, qtys := unitColumns(moves.Return)
		batch.Queue(d.sql(pgdb.AddStock), skus, buckets, qtys)
	}
	if len(moves.Insert) > 0 {
		batch.Queue("select set_config('lock_timeout', $1, true)", keyTimeout)
		d.queueInsert(&batch, moves.Insert)
	}
	return &batch
}

func setColumns(set []engine.Set) (keys []string, states []int16, holdsUs []int64) {
	for _, s := range set {
		keys = append(keys, s.Key)
		states = append(states, s.State)
		holdsUs = append(holdsUs, s.Hold.Microseconds())
	}
	return keys, states, holdsUs
}

// Due returns the keys of held reservations that have expired.
func (d *database) Due(ctx context.Context, limit int) ([]string, error) {
	keys, err := d.q.DueReservations(ctx, d.on(d.pool), int32(limit))
	return keys, fault.NoWrite(err)
}
