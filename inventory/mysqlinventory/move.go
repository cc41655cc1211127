package mysqlinventory

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/mysqltext"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// Move takes a few round trips, as Transact does.
func (d *database) Move(ctx context.Context, keys []string, decide func(map[string][]engine.Row) engine.Moves) error {
	return d.inTx(ctx, func(on mysqldb.DBTX) (bool, error) {
		locked, err := lockReservations(ctx, on, keys)
		if err != nil {
			return false, err
		}
		moves := decide(locked)
		if moves.IsEmpty() {
			return false, nil
		}
		return true, writeMoves(ctx, on, moves)
	})
}

func lockReservations(ctx context.Context, on mysqldb.DBTX, keys []string) (map[string][]engine.Row, error) {
	var found []mysqldb.ReservationsRow
	err := askAll(ctx, on, mysqldb.LockReservations, keys, textArgs, func(rows *sql.Rows) error {
		var r mysqldb.ReservationsRow
		err := rows.Scan(&r.ReservationKey, &r.Line, &r.Sku, &r.Bucket, &r.Buyer, &r.Qty, &r.State, &r.Limited, &r.LeftUs)
		found = append(found, r)
		return err
	})
	return byKey(found), err
}

// writeMoves comes to new keys last, as Transact does: whoever waits for one of them then waits for the commit alone.
func writeMoves(ctx context.Context, on mysqldb.DBTX, moves engine.Moves) error {
	if n := len(moves.Set); n > 0 {
		if _, err := on.ExecContext(ctx, mysqltext.Asks(mysqldb.SetReservations, n), flat(moves.Set, setArgs)...); err != nil {
			return err
		}
	}
	if err := repeat(ctx, on, mysqldb.UncountQuotas, moves.Uncount, uncountArgs); err != nil {
		return err
	}
	if err := repeat(ctx, on, mysqldb.AddStock, moves.Return, unitArgs); err != nil {
		return err
	}
	return repeat(ctx, on, mysqldb.InsertReservations, moves.Insert, rowArgs)
}

func setArgs(s engine.Set) []any { return []any{[]byte(s.Key), s.State, s.Hold.Microseconds()} }

func uncountArgs(c engine.Count) []any { return append(quotaArgs(c.Quota), c.Qty) }

// Due returns the keys of held reservations that have expired.
func (d *database) Due(ctx context.Context, limit int) ([]string, error) {
	due, err := d.q.DueReservations(ctx, d.on(d.pool), int32(limit))
	keys := make([]string, len(due))
	for i, key := range due {
		keys[i] = string(key)
	}
	return keys, fault.NoWrite(err)
}
